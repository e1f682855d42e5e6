use super::super::tests::{Folder, load};
use super::without_secrets;
use std::time::Duration;

#[test]
fn a_url_is_shown_without_what_may_be_secret() {
    for (url, shown) in [
        ("", ""),
        ("postgres://u:p@h:5432/shop?password=p", "postgres://h:5432/shop"),
        ("postgres:///shop?host=/run/x", "postgres:///shop"),
        ("postgres://u:p@@h/shop", "postgres://h/shop"),
        ("u:p@h", "…"),
    ] {
        assert_eq!(without_secrets(url), shown);
    }
}

#[test]
fn the_database_comes_from_the_url_or_from_a_file_with_it() {
    let folder = Folder::new("postgres");
    let file = folder.file("url", "postgres://shop:secret@db/shop\n");
    let file = file.display().to_string();
    let database = |set: &[(&str, &str)]| {
        let database = load(None, &[], set)?.database().map_err(|error| error.to_string())?;
        Ok::<_, String>(database.map(|database| format!("{database:?}")))
    };
    assert_eq!(database(&[]), Ok(None));
    let url = database(&[("postgres.url", "postgres://u@h/d"), ("postgres.max_connections", "7")]);
    assert!(
        url.as_ref().is_ok_and(|database| database.as_ref().is_some_and(|it| it.contains('7'))),
        "{url:?}"
    );
    let from_file = database(&[("postgres.url_file", &file)]).unwrap().unwrap();
    assert!(from_file.contains("\"db\"") && !from_file.contains("secret"), "{from_file}");

    let both = database(&[("postgres.url_file", &file), ("postgres.url", "postgres://u:hidden@h/d")]);
    let both = both.unwrap_err();
    assert!(both.starts_with("postgres.url_file: expected either") && !both.contains("hidden"), "{both}");
    let wrong = database(&[("postgres.url", "mysql://u:hidden@h/d")]).unwrap_err();
    assert!(wrong.contains("postgres://user@host/database") && !wrong.contains("hidden"), "{wrong}");
    let none = database(&[("postgres.url_file", "no such file")]).unwrap_err();
    assert!(none.contains("a file that can be read"), "{none}");
    let connections = database(&[("postgres.max_connections", "0")]).unwrap_err();
    assert!(connections.contains("1 to 10000, got 0"), "{connections}");
}

#[test]
fn a_relay_needs_a_database() {
    let relay =
        |set: &[(&str, &str)]| load(None, &[], set).unwrap().relay().map_err(|error| error.to_string());
    assert!(relay(&[]).unwrap().is_none());
    let alone = relay(&[("postgres.relay", "true")]).unwrap_err();
    assert!(alone.starts_with("postgres.relay: expected false, or a database"), "{alone}");
    let given = [
        ("postgres.relay", "true"),
        ("postgres.url", "postgres://h/d"),
        ("postgres.prune_inbox_after_days", "30"),
    ];
    assert_eq!(relay(&given).unwrap().unwrap().prune_after, Some(Duration::from_secs(30 * 86_400)));
    let ages = relay(&[("postgres.prune_inbox_after_days", "40000")]).unwrap_err();
    assert!(ages.contains("0 (kept) to 36500 days"), "{ages}");
}
