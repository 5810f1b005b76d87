//! Writes make versions; reads of old ones are refused.

use tensoryard_graph::{DType, GraphBuilder, OpError};

#[test]
fn reading_an_old_version_is_an_error_with_both_numbers() {
    let g = GraphBuilder::new("old");
    let cache = g.state("cache", DType::F32, [4, 8]);
    let x = g.input("x", DType::F32, [4, 8]);
    _ = x.copy_into(cache);
    let line = line!() + 1;
    _ = cache.add(x);
    let error = g.finish().unwrap_err();
    assert_eq!(error.location.line(), line);
    let old = OpError::OldVersion { root: "cache".to_owned(), read: 0, current: 1 };
    assert_eq!(*error.error, old);
    assert!(
        error.to_string().ends_with(r#"version 0 of "cache" is read after version 1 was written"#)
    );
}

#[test]
fn a_write_through_a_view_makes_a_new_version_of_the_whole_root() {
    let g = GraphBuilder::new("view");
    let cache = g.state("cache", DType::F32, [4, 8]);
    let (head, tail) = (cache.slice(1, 0, 4), cache.slice(1, 4, 4));
    let x = g.input("x", DType::F32, [4, 4]);
    _ = tail.add(x);
    let written = x.copy_into(head);
    assert_eq!(written.shape().dims(), [4, 4, 1, 1]);
    _ = tail.add(x);
    let error = g.finish().unwrap_err();
    assert!(matches!(*error.error, OpError::OldVersion { read: 0, current: 1, .. }));
}

#[test]
fn views_of_old_versions_and_second_writes_through_them_are_refused() {
    let g = GraphBuilder::new("again");
    let cache = g.state("cache", DType::F32, [4, 8]);
    let x = g.input("x", DType::F32, [4, 8]);
    _ = x.copy_into(cache);
    _ = x.copy_into(cache);
    assert!(matches!(*g.finish().unwrap_err().error, OpError::OldVersion { .. }));
    let g = GraphBuilder::new("again");
    let cache = g.state("cache", DType::F32, [4, 8]);
    _ = g.input("x", DType::F32, [4, 8]).copy_into(cache);
    _ = cache.transpose();
    assert!(matches!(*g.finish().unwrap_err().error, OpError::OldVersion { .. }));
    let g = GraphBuilder::new("again");
    let cache = g.state("cache", DType::F32, [4, 8]);
    _ = g.input("x", DType::F32, [4, 8]).copy_into(cache);
    cache.output("old");
    assert!(matches!(*g.finish().unwrap_err().error, OpError::OldVersion { .. }));
}

#[test]
fn an_output_that_is_overwritten_later_is_refused_where_it_was_made() {
    let g = GraphBuilder::new("overwritten");
    let result = g.input("x", DType::F32, [4]).scale(2.0, 0.0).output("result");
    _ = g.input("z", DType::F32, [4]).copy_into(result);
    let error = g.finish().unwrap_err();
    assert_eq!((error.op, error.tensor.as_str()), ("output", "result"));
    assert!(matches!(*error.error, OpError::OldVersion { read: 0, current: 1, .. }));
}

#[test]
fn weights_and_inputs_are_never_written() {
    let g = GraphBuilder::new("weight");
    let x = g.input("x", DType::F32, [4]);
    _ = x.copy_into(g.weight("w", DType::F32, [4]));
    assert_eq!(*g.finish().unwrap_err().error, OpError::ReadOnly("weight"));
    let g = GraphBuilder::new("input");
    let x = g.input("x", DType::F32, [4]);
    _ = x.scale(1.0, 0.0).copy_into(x.reshape([2, 2]).reshape([4]));
    assert_eq!(*g.finish().unwrap_err().error, OpError::ReadOnly("graph input"));
}

#[test]
fn rows_that_overlap_are_not_written() {
    let g = GraphBuilder::new("overlap");
    let windows = g.state("s", DType::F32, [10]).view([4, 3], [4, 8, 24, 24], 0);
    _ = g.input("x", DType::F32, [4, 3]).copy_into(windows);
    let error = g.finish().unwrap_err().error;
    assert!(matches!(&*error, OpError::Layout { operand: "base", .. }), "{error}");
}

#[test]
fn state_writes_live_and_dead_ops_do_not() {
    let g = GraphBuilder::new("live");
    let x = g.input("x", DType::F32, [4]);
    let scaled = x.scale(2.0, 0.0);
    let write = scaled.copy_into(g.state("s", DType::F32, [4]));
    let dead = x.scale(3.0, 0.0);
    // A write into a result that nothing reads is dead, too.
    let dead_write = x.copy_into(x.scale(4.0, 0.0));
    let ids = [scaled.id(), write.id(), dead.id(), dead_write.id()];
    let graph = g.finish().unwrap();
    assert_eq!(ids.map(|id| graph.is_live(id)), [true, true, false, false]);
    assert_eq!(graph.live_nodes().collect::<Vec<_>>(), ids[..2]);
}

#[test]
fn a_read_before_the_write_keeps_its_version() {
    let g = GraphBuilder::new("before");
    let s = g.state("s", DType::F32, [4]);
    let before = s.scale(2.0, 0.0);
    let written = before.copy_into(s);
    let again = written.scale(2.0, 0.0).copy_into(written);
    again.scale(1.0, 0.0).output("y");
    let ids = [s.id(), written.id(), again.id()];
    let graph = g.finish().unwrap();
    assert_eq!(ids.map(|id| graph.tensor(id).version), [0, 1, 2]);
    assert!(ids.iter().all(|&id| graph.root(id) == ids[0]));
}
