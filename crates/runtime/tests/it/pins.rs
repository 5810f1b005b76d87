//! Pins by name pattern.

use std::sync::Arc;

use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::plan::{DeviceSelector, NamedPin, Pins, Reason};
use tensoryard_runtime::{DeviceIndex, PlanError};

use crate::policy::{A, B, build, devices, draft_on, find, options, placed};
use crate::support::{full, without};

fn pin(pattern: &str) -> NamedPin {
    NamedPin::new(pattern, "0")
}

#[test]
fn patterns_match_whole_names() {
    let yes = [
        ("", ""),
        ("abc", "abc"),
        ("*", ""),
        ("*", "anything at all"),
        ("a*", "a"),
        ("a*c", "abbbc"),
        ("a*c", "acbc"),
        ("*.w", "decoder.3.w"),
        ("a?c", "abc"),
        ("a?c", "aäc"),
        ("**", "x"),
        ("*a*b*", "xxaxxbxx"),
        ("a*a*a", "aaaa"),
        ("?*", "x"),
        ("blk.?.attn*", "blk.3.attn_q"),
    ];
    for (pattern, name) in yes {
        assert!(pin(pattern).matches(name), "{pattern} {name}");
    }
    let no = [
        ("", "a"),
        ("abc", "abcd"),
        ("abc", "ab"),
        ("a?c", "ac"),
        ("a*c", "abcd"),
        ("?", ""),
        ("?*", ""),
        ("Abc", "abc"),
        ("*a*b*", "bbba"),
        ("a*a*a", "aa"),
        ("blk.?.attn*", "blk.13.attn_q"),
    ];
    for (pattern, name) in no {
        assert!(!pin(pattern).matches(name), "{pattern} {name}");
    }
}

#[test]
fn many_stars_take_no_longer_than_the_product_of_lengths() {
    let name = "a".repeat(3000);
    assert!(!pin(&format!("{}b", "a*".repeat(500))).matches(&name));
}

#[test]
fn texts_are_pins_or_errors() {
    let parsed: NamedPin = "decoder.* = gpu".parse().unwrap();
    assert_eq!(parsed.pattern, "decoder.*");
    assert_eq!(parsed.device, DeviceSelector::Name("gpu".into()));
    // The last sign divides, since names may contain it.
    let parsed: NamedPin = "a=b=1".parse().unwrap();
    assert_eq!((parsed.pattern.as_str(), &parsed.device), ("a=b", &DeviceSelector::Index(1)));
    for text in ["", "name", "=gpu", "name=", " = "] {
        let error = text.parse::<NamedPin>().unwrap_err();
        assert_eq!(error.to_string(), format!("{text:?} is no pin, wanted PATTERN=DEVICE"));
    }
}

#[test]
fn devices_are_found_by_number_or_name_without_regard_to_case() {
    let devices = devices(vec![full("A"), full("Bee")]);
    let find = |text: &str| DeviceSelector::parse(text).find(&devices);
    assert_eq!(find("0"), Some(A));
    assert_eq!(find("bEE"), Some(B));
    assert_eq!(find("2"), None);
    assert_eq!(find("bees"), None);
}

#[test]
fn pins_are_added_replaced_removed_and_listed() {
    let mut pins = Pins::new();
    assert!(pins.is_empty());
    pins.parse("a*=0").unwrap();
    pins.parse("b*=0").unwrap();
    pins.parse("a*=1").unwrap();
    let listed: Vec<&str> = pins.iter().map(|pin| pin.pattern.as_str()).collect();
    assert_eq!(listed, ["b*", "a*"]);
    assert!(pins.remove("b*"));
    assert!(!pins.remove("b*"));
    assert_eq!(pins.iter().count(), 1);
}

fn graph() -> Arc<Graph> {
    build(|g| {
        let x = g.input("x", DType::F32, [4, 2]);
        let first = x.unary(UnaryKind::Relu).named("layer.0");
        let second = first.reshape([8]).named("layer.view").scale(2.0, 0.0).named("layer.1");
        second.scale(3.0, 0.0).named("tail").output("y");
        _ = x.scale(1.0, 0.0).named("dead");
    })
}

#[test]
fn the_last_matching_pin_counts_and_views_follow_their_base() {
    let graph = graph();
    let devices = devices(vec![full("A"), full("B")]);
    let pinned = options(|o| {
        o.named_pins.parse("layer.*=a").unwrap();
        o.named_pins.parse("layer.1=b").unwrap();
        o.named_pins.parse("layer.view=1").unwrap();
    });
    let blueprint = draft_on(&graph, &devices, 0, &pinned).unwrap();
    assert_eq!(placed(&blueprint, &["layer.0", "layer.view", "layer.1"]), [0, 0, 1]);
    assert_eq!(blueprint.placement.reason(find(&graph, "layer.1")), Reason::Pinned);
    assert_eq!(blueprint.placement.reason(find(&graph, "layer.view")), Reason::BaseOfView);
}

#[test]
fn patterns_that_match_nothing_that_lives_are_listed() {
    let graph = graph();
    let devices = devices(vec![full("A")]);
    let mut pins = Pins::new();
    for text in ["layer.*=0", "layer.view=0", "dead=0", "nothing*=0"] {
        pins.parse(text).unwrap();
    }
    let (resolved, unmatched) = pins.resolve(&graph, &devices).unwrap();
    assert_eq!(resolved.len(), 2);
    let names: Vec<&str> = unmatched.iter().map(|pin| pin.pattern.as_str()).collect();
    assert_eq!(names, ["dead", "nothing*"]);
    let other = build(|g| {
        g.input("nothing here", DType::F32, [4]).scale(1.0, 0.0).output("y");
    });
    let unmatched = pins.unmatched(&[&graph, &other]);
    assert_eq!(unmatched.iter().map(|pin| pin.pattern.as_str()).collect::<Vec<_>>(), ["dead"]);
}

#[test]
fn pins_that_cannot_be_honoured_are_errors_with_the_reason() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [4, 2]);
        let w = g.weight("w", DType::F32, [4, 4]);
        w.mul_mat(x).unary(UnaryKind::Relu).named("relu").output("y");
    });
    let devices = devices(vec![full("A"), without("B", &[OpKind::Unary])]);
    let error = |text: &str| {
        let options = options(|o| o.named_pins.parse(text).unwrap());
        draft_on(&graph, &devices, 0, &options).unwrap_err().to_string()
    };
    assert_eq!(error("y=B"), r#""y" cannot be pinned to B: lacks unary"#);
    assert_eq!(error("w=1"), r#""w" cannot be pinned to B: it lies in A memory"#);
    assert_eq!(error("y=7"), r#""y" cannot be pinned to device 7: there is no such device"#);
    assert_eq!(error("y=gpu"), r#""y" cannot be pinned to gpu: there is no such device"#);
}

#[test]
fn a_pin_by_id_counts_more_than_one_by_name() {
    let graph = graph();
    let devices = devices(vec![full("A"), full("B")]);
    let tensor = find(&graph, "layer.0");
    let options = options(|o| {
        o.named_pins.parse("layer.0=0").unwrap();
        o.pins.push(tensoryard_runtime::plan::Pin { tensor, device: DeviceIndex(1) });
    });
    let blueprint = draft_on(&graph, &devices, 0, &options).unwrap();
    assert_eq!(placed(&blueprint, &["layer.0"]), [1]);
}

#[test]
fn an_unknown_device_is_an_error_even_when_nothing_matches() {
    let mut pins = Pins::new();
    pins.parse("nothing=gpu").unwrap();
    let devices = devices(vec![full("A")]);
    let error = pins.resolve(&graph(), &devices).unwrap_err();
    assert!(matches!(&error, PlanError::Pin { device, .. } if device == "gpu"), "{error}");
}
