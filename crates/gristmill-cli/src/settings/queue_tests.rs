use super::tests::load;

#[test]
fn queues_have_weights_of_their_own() {
    let set = [("queues", "a,b.2,c"), ("queue.a.weight", "9"), ("queue.b.2.weight", "100")];
    let queues = load(None, &[], &set).unwrap().queues().unwrap();
    assert_eq!(queues.iter().map(|queue| queue.weight).collect::<Vec<_>>(), [9, 100, 1]);
    for wrong in ["0", "101", "18446744073709551615"] {
        let loaded = load(None, &[], &[("queues", "a"), ("queue.a.weight", wrong)]);
        let error = loaded.and_then(|told| told.queues().map_err(|e| e.to_string())).unwrap_err();
        assert!(error.starts_with("queue.a.weight: expected "), "{error}");
    }
}
