//! Reports of plans: their numbers by hand, and their forms under hostile names.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tensoryard::formats::whisper::WhisperConfig;
use tensoryard::graph::{DType, Graph, GraphBuilder, OpKind};
use tensoryard::models::whisper::config::GraphConfig;
use tensoryard::models::whisper::graphs::{ModelGraph, graphs};
use tensoryard::plan_view::{Detail, Family, PlanModelError, PlannedGraph, Report};
use tensoryard::runtime::plan::{MemoryLimits, assign, draft};
use tensoryard::runtime::{Device, DeviceRates, PlanDevice, PlanOptions, Selected};
use tensoryard_conformance::reference::ReferenceOptions;

/// A device that only multiplies matrices, a second that does everything in no time.
fn devices() -> [Arc<dyn Device>; 2] {
    let mut near = ReferenceOptions::new("near");
    near.ops = vec![OpKind::MulMat];
    near.rates = Some(DeviceRates {
        matrix_f32_flops_per_s: 1e9,
        op_overhead_ns: 10.0,
        split_overhead_ns: 100.0,
        to_device_bytes_per_s: 1e9,
        from_device_bytes_per_s: 1e9,
        transfer_latency_ns: 5.0,
        ..DeviceRates::UNLIMITED
    });
    let mut far = ReferenceOptions::new("far");
    far.rates = Some(DeviceRates::UNLIMITED);
    [near.build(), far.build()]
}

/// Twice `gelu(w · x)`, the inner value kept as state.
fn toy(weight: &str, state: &str) -> Arc<Graph> {
    let g = GraphBuilder::new("toy");
    let x = g.input("x", DType::F32, [4, 2]);
    let kept = g.state(state, DType::F32, [3, 2]);
    let y = g.weight(weight, DType::F32, [4, 3]).mul_mat(x).gelu_erf();
    y.copy_into(kept);
    y.scale(2.0, 0.0).output("out");
    Arc::new(g.finish().unwrap())
}

fn selected(devices: &[Arc<dyn Device>]) -> Vec<Selected> {
    devices.iter().map(|device| Selected::new(Arc::clone(device))).collect()
}

fn model(graph: Arc<Graph>) -> Vec<ModelGraph> {
    vec![ModelGraph { name: "toy", purpose: "a toy".to_owned(), graph }]
}

fn report_of(title: &str, weight: &str, state: &str) -> Report {
    let graphs = model(toy(weight, state));
    Report::of_graphs(title, &graphs, &selected(&devices()), &PlanOptions::default()).unwrap()
}

fn toy_report() -> Report {
    report_of("toy", "block.0.up.weight", "cache")
}

#[test]
fn the_numbers_are_those_of_a_hand_calculation() {
    let report = toy_report();
    let graph = &report.graphs[0];
    assert_eq!((graph.nodes, graph.operations.len(), graph.splits.len()), (4, 4, 2));
    // x, f32 [4, 2], goes to the first device; the product, f32 [3, 2], to the second.
    let copies: Vec<_> =
        graph.copies.iter().map(|copy| (&*copy.tensor, copy.from, copy.to, copy.bytes)).collect();
    assert_eq!(copies, [("x", Some(1), 0, 32), ("mul_mat.3", Some(0), 1, 24)]);
    assert_eq!(graph.copied_bytes, 56);
    // 2 · 4 · 3 · 2 for the product; the rest costs nothing on a device of unlimited speed.
    assert_eq!(graph.operations[0].flops, 48.0);
    // 5 + 32 into the first device, 100 + 10 + 48 on it, 5 + 24 out of it.
    let times: Vec<_> = graph.splits.iter().map(|split| split.predicted.unwrap()).collect();
    assert_eq!((times[0].start_ns, times[0].end_ns, times[0].copy_ns), (37, 195, 37));
    assert_eq!((times[1].start_ns, times[1].compute_ns, times[1].copy_ns), (224, 0, 29));
    assert_eq!((graph.predicted_ns, graph.operations[0].predicted_ns), (Some(224), Some(58)));
    let sent = graph.copies[1].predicted.unwrap();
    assert_eq!((sent.queue, sent.start_ns, sent.end_ns), (0, 195, 224));
    // The weight takes 48 bytes, padded to the alignment of 32; the state 24.
    let [near, far] = &report.memory[..] else { panic!("{:?}", report.memory) };
    assert_eq!((near.weights_bytes, near.state_bytes, &*near.devices), (64, 0, &[0][..]));
    assert_eq!((far.weights_bytes, far.state_bytes, &*far.devices), (0, 32, &[1][..]));
    assert!(report.fits && near.over_bytes == 0 && far.peak_bytes == 32 + far.compute_bytes);
}

#[test]
fn every_operation_says_why_it_is_where_it_is() {
    let graph = &toy_report().graphs[0];
    let [product, gelu, write, double] = &graph.operations[..] else { panic!() };
    assert_eq!((&*product.reason, product.device, product.family), ("weight 0", 0, Family::Matrix));
    assert_eq!(product.because, "Its weight block.0.up.weight is kept in near memory.");
    assert_eq!((&*product.group.join("/"), &*product.label), ("block.0", "up"));
    assert_eq!((&*gelu.op, gelu.device, gelu.sources[0].copy), ("gelu_erf", 1, Some(1)));
    assert_eq!(gelu.sources[0].operation, Some(0));
    assert_eq!((write.memory.region, &*write.label), ("state", "cache"));
    assert_eq!(write.because, "It writes cache, which is kept in far memory.");
    assert_eq!((double.sources[0].operation, double.sources[0].copy), (Some(1), None));
    assert_eq!(
        (double.result.dtype, &*double.result.shape, double.bytes),
        ("f32", &[3, 2][..], 24)
    );
}

#[test]
fn a_report_counts_what_the_blueprint_has() {
    let sizes = WhisperConfig {
        n_vocab: 60,
        n_audio_ctx: 20,
        n_audio_state: 8,
        n_audio_head: 2,
        n_audio_layer: 2,
        n_text_ctx: 16,
        n_text_state: 8,
        n_text_head: 2,
        n_text_layer: 2,
        n_mels: 4,
    };
    let config = GraphConfig { sizes, matrix: DType::F16, cache: DType::F16 };
    let mut able = ReferenceOptions::new("able");
    able.ops.retain(|&kind| kind != OpKind::Attention);
    let cpu = tensoryard::default_registry().select("cpu").unwrap().device;
    let devices = [able.build(), cpu].map(|device| {
        let buffer_type = Arc::clone(&device.buffer_types()[0]);
        PlanDevice { device, buffer_type }
    });
    let graphs = graphs(&config).unwrap();
    let list: Vec<_> = graphs.iter().map(|graph| &graph.graph).collect();
    let options = PlanOptions::default();
    let assignment = assign(&list, &devices, &options).unwrap();
    let draft = |graph| draft(graph, &devices, assignment.residence(graph).unwrap(), &options);
    let blueprints: Vec<_> = list.iter().map(|graph| draft(graph).unwrap()).collect();
    let planned = graphs.iter().zip(&blueprints);
    let planned: Vec<_> = planned
        .map(|(graph, blueprint)| PlannedGraph { name: graph.name, purpose: "", blueprint })
        .collect();
    let report = Report::new("small", "priority", assignment.memory(), None, &planned).unwrap();
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    let sum = |values: &Value, field: &str| -> u64 {
        values.as_array().unwrap().iter().map(|value| value[field].as_u64().unwrap()).sum()
    };
    for (blueprint, graph) in blueprints.iter().zip(json["graphs"].as_array().unwrap()) {
        let length = |field: &str| graph[field].as_array().unwrap().len();
        assert_eq!(length("operations"), blueprint.operations.len());
        assert_eq!(length("splits"), blueprint.splits.len());
        assert_eq!(length("copies"), blueprint.arrivals.len());
        assert_eq!(sum(&graph["splits"], "operations"), length("operations") as u64);
        let bytes = blueprint.arrivals.iter();
        let bytes = bytes.map(|arrival| blueprint.graph.layout(arrival.tensor).data_bytes());
        assert_eq!(graph["copied_bytes"], json!(bytes.sum::<usize>()));
        assert_eq!(sum(&graph["splits"], "copied_bytes"), sum(&graph["copies"], "bytes"));
        let nodes = graph["operations"].as_array().unwrap().iter();
        let nodes = nodes.map(|operation| operation["nodes"].as_array().unwrap().len());
        assert_eq!(json!(nodes.sum::<usize>()), graph["nodes"]);
        assert!(graph.get("predicted_ns").is_none(), "the speed of the devices is not known");
    }
    let text = report.text(Detail::Summary);
    assert!(
        text.contains("No time is predicted: the speed of able, CPU is not known (`"),
        "{text}"
    );
    let encoder = &report.graphs[0];
    assert!(encoder.copies.len() >= 4, "attention is elsewhere in both blocks");
    let parts: Vec<String> = encoder
        .operations
        .iter()
        .map(|op| format!("{} > {}", op.group.join("/"), op.label))
        .collect();
    assert_eq!(parts[..3], ["encoder > conv1", "encoder > conv2", "encoder/blocks.0 > attn_ln"]);
    assert!(parts.contains(&"encoder/blocks.1 > mlp.2".to_owned()), "{parts:?}");
    assert!(parts.contains(&"decoder/blocks.0/cross_attn > cross.k.0".to_owned()), "{parts:?}");
}

#[test]
fn what_does_not_fit_is_reported_with_the_excess() {
    let [_, far] = devices();
    let limits = MemoryLimits { devices: vec![Some(100)], spill: true };
    let options = PlanOptions { limits, ..PlanOptions::default() };
    let graphs = model(toy("w", "cache"));
    let report = Report::of_graphs("toy", &graphs, &selected(&[far]), &options).unwrap();
    let memory = &report.memory[0];
    assert!(!report.fits);
    assert_eq!(memory.limit_bytes, Some(100));
    assert_eq!(memory.over_bytes, memory.peak_bytes - 100);
    assert!(memory.over_bytes > 0 && report.graphs[0].operations.len() > 1);
    assert!(report.problem.as_ref().unwrap().contains("100"), "{:?}", report.problem);
    assert!(report.verdict().starts_with("Does not fit: far needs "), "{}", report.verdict());
    assert!(report.text(Detail::Summary).contains("over by "));
}

#[test]
fn pins_hold_and_those_that_match_nothing_are_told() {
    let graphs = model(toy("w", "cache"));
    let plan = |pin: &str| {
        let mut options = PlanOptions::default();
        options.named_pins.parse(pin).unwrap();
        Report::of_graphs("toy", &graphs, &selected(&devices()), &options)
    };
    let report = plan("w=far").unwrap();
    assert!(report.graphs[0].operations.iter().all(|operation| operation.device == 1));
    assert!(report.unmatched_pins.is_empty() && !report.json().contains("unmatched_pins"));
    let report = plan("v*=far").unwrap();
    assert_eq!(report.unmatched_pins, ["v*"]);
    assert!(report.fits && report.json().contains("\"unmatched_pins\": ["));
    assert!(matches!(plan("w=nowhere"), Err(PlanModelError::Plan(_))));
}

#[test]
fn the_text_names_devices_memory_splits_and_copies() {
    let report = toy_report();
    let text = report.text(Detail::Summary);
    for part in [
        "toy, strategy priority\n",
        "  near  oracle near (accelerator)\n",
        "  4 operations in 2 splits, 2 copies of 56 B, 138 FLOP, predicted 224 ns\n",
        "  copies 32 B in: x from far\n",
        "  copies 24 B in: block.0 › up from near\n",
        "\nEverything fits.\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("Its weight"));
    let all = report.text(Detail::Operations);
    assert!(all.contains("Its weight block.0.up.weight is kept in near memory."), "{all}");
}

const HOSTILE: &str =
    "</script><img src=x onerror=alert(1)>.]]>&amp;\"'\\\n\u{1b}[2J\u{202e}{}-->;\u{ffff}.weight";

fn xml(text: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(text, options).unwrap_or_else(|error| panic!("{error}"))
}

fn elements<'a>(document: &'a roxmltree::Document<'_>) -> BTreeSet<&'a str> {
    document.descendants().filter(|node| node.is_element()).map(|n| n.tag_name().name()).collect()
}

#[test]
fn hostile_names_stay_names_in_the_page() {
    let report = report_of(HOSTILE, HOSTILE, "<b>&");
    let page = report.html();
    let document = xml(&page);
    let known =
        ["html", "head", "meta", "title", "style", "body", "main", "noscript", "pre", "script"];
    assert_eq!(elements(&document), BTreeSet::from(known));
    let scripts: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "script")))
        .collect();
    assert_eq!(scripts.len(), 2);
    assert_eq!(page.matches("</script").count(), 2, "HTML ends a script at the first");
    assert_eq!(page.matches("<!--").count(), 0);
    let data: Value = serde_json::from_str(scripts[0].text().unwrap()).unwrap();
    assert_eq!(data, serde_json::from_str::<Value>(&report.json()).unwrap());
    assert_eq!(data["title"], HOSTILE);
    assert!(data["graphs"][0]["operations"][0]["because"].as_str().unwrap().contains(HOSTILE));
}

#[test]
fn the_page_fetches_nothing() {
    let page = toy_report().html();
    // Names of XML, and a reference inside the picture.
    let own = page.replace("http://www.w3.org/", "").replace("url(#", "");
    for outside in ["http:", "https:", "url(", "@import", "src=", "href=", "fetch(", "XMLHttp"] {
        assert!(!own.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("innerHTML") && !page.contains("document.write"));
}

#[test]
fn hostile_names_stay_names_in_the_picture() {
    let report = report_of(HOSTILE, HOSTILE, "<b>&");
    let picture = report.svg();
    let document = xml(&picture);
    assert_eq!(
        elements(&document),
        BTreeSet::from(["g", "path", "rect", "style", "svg", "text", "title"])
    );
    let of_class = |name: &str| {
        let with = |node: &roxmltree::Node<'_, '_>| {
            node.attribute("class").is_some_and(|class| class.split(' ').any(|c| c == name))
        };
        document.descendants().filter(with).count()
    };
    // Two splits, four operations, an arrow for each of two copies.
    assert_eq!((of_class("split"), of_class("op"), of_class("copy")), (2, 4, 2));
}

#[test]
fn the_dot_form_has_a_cluster_for_each_split_and_quotes_names() {
    let report = report_of(HOSTILE, HOSTILE, "<b>&");
    let text = report.dot();
    assert_eq!(text.matches("subgraph cluster_g0s").count(), 2);
    assert!(text.contains("g0o0 -> g0o1 [style=dashed, label=\"24 B\"];"), "{text}");
    assert!(text.contains("g0o1 -> g0o3;"), "{text}");
    // Outside of strings only the language itself remains, and its brackets are balanced.
    let (mut quoted, mut escaped, mut depth) = (false, false, 0);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => assert!(!c.is_control(), "{c:?} in a string"),
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {
                let plain = c.is_ascii_alphanumeric() || " \n_;=,->".contains(c);
                assert!(plain, "{c:?} outside of a string in\n{text}");
            }
        }
        assert!(depth >= 0);
    }
    assert_eq!((quoted, depth), (false, 0));
}
