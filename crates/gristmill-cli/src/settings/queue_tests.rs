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

#[test]
fn queues_know_ids_for_windows_of_their_own() {
    let set = [
        ("queues", "a,b.2,c"),
        ("seen.window_ms", "5000"),
        ("queue.a.seen_window_ms", "9"),
        ("queue.b.2.seen_window_ms", "0"),
    ];
    let settings = load(None, &[], &set).unwrap();
    let queues = settings.queues().unwrap();
    let said: Vec<u64> = queues.iter().map(|queue| settings.seen_window_ms(&queue.name)).collect();
    assert_eq!(said, [9, 0, 5000]);
    let told: Vec<_> = queues.iter().map(|queue| queue.seen_window.map(|it| it.as_millis())).collect();
    assert_eq!(told, [Some(9), Some(0), None]);
    let unknown = load(None, &[], &[("queue.a.seen_windows_ms", "1")]).unwrap_err();
    assert!(unknown.starts_with("queue.a.seen_windows_ms: there is no such setting"), "{unknown}");
    assert!(load(None, &[], &[("queue.a.seen_window_ms", "long")]).is_err());
}
