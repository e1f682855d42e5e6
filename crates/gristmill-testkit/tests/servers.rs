//! Private servers: faults, persistence, isolation, and that nothing of them stays.

use gristmill_testkit::{
    Error, eventually,
    process::Process,
    server::{Appendonly, Flavor, Reply, Server, ServerOptions},
};
use std::{
    env,
    io::Write,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

const SOON: Duration = Duration::from_secs(10);

#[track_caller]
fn get(server: &Server, key: &str) -> Reply {
    match server.command(&["GET", key]) {
        Ok(reply) => reply,
        Err(error) => panic!("{error}"),
    }
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// Gone, or a zombie that its parent has yet to reap.
fn is_dead(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
    }
}

#[test]
fn answers_under_its_own_pid_and_version() {
    let server = Server::start(ServerOptions::new()).unwrap();
    assert_eq!(server.info("server", "process_id").unwrap(), server.pid().unwrap().to_string());
    // Valkey keeps `redis_version` at 7.2.4 for clients that look.
    let own = server.info("server", "valkey_version").or_else(|_| server.info("server", "redis_version"));
    assert_eq!(own.unwrap(), server.version());
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert!(server.used_memory().unwrap() > 100_000);
    assert!(Flavor::available().contains(&Flavor::Redis7));
}

#[test]
fn paused_it_is_silent_and_resumed_it_answers_what_was_asked_meanwhile() {
    let mut server = Server::start(ServerOptions::new()).unwrap();
    let mut connection = server.connection().unwrap();
    connection.command(&["SET", "k", "before"]).unwrap();
    server.pause().unwrap();
    thread::scope(|scope| {
        let asked = scope.spawn(move || connection.command(&["SET", "k", "while paused"]));
        let state = Path::new("/proc").join(server.pid().unwrap().to_string()).join("stat");
        eventually(SOON, "the stopped state", || {
            std::fs::read_to_string(&state).unwrap().contains(") T ").then_some(())
        });
        assert!(!asked.is_finished(), "a paused server answered");
        server.resume().unwrap();
        assert_eq!(asked.join().unwrap().unwrap(), Reply::Status("OK".into()));
    });
    assert_eq!(get(&server, "k"), bulk("while paused"));
}

#[test]
fn a_kill_loses_what_was_not_appended_and_keeps_what_was() {
    for (appendonly, kept) in
        [(Appendonly::Off, Reply::Nil), (Appendonly::Everysec, bulk("v")), (Appendonly::Always, bulk("v"))]
    {
        let mut server = Server::start(ServerOptions::new().appendonly(appendonly)).unwrap();
        let (port, pid) = (server.port(), server.pid().unwrap());
        server.command(&["SET", "k", "v"]).unwrap();
        server.kill().unwrap();
        assert_eq!(server.pid(), None);
        assert!(server.command(&["PING"]).is_err());
        assert!(matches!(server.pause(), Err(Error::NotRunning { .. })));
        server.restart().unwrap();
        assert_eq!(get(&server, "k"), kept, "{appendonly:?}");
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), Some(pid));
    }
}

#[test]
fn a_paused_server_can_be_killed_and_shut_down() {
    let mut server = Server::start(ServerOptions::new().appendonly(Appendonly::Everysec)).unwrap();
    server.pause().unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    server.command(&["SET", "k", "v"]).unwrap();
    server.pause().unwrap();
    server.shutdown().unwrap();
    assert!(matches!(server.shutdown(), Err(Error::NotRunning { .. })));
    server.restart().unwrap();
    assert_eq!(get(&server, "k"), bulk("v"));
}

#[test]
fn rolls_back_to_an_older_prefix_and_seeds_another_server() {
    for appendonly in [Appendonly::Off, Appendonly::Always] {
        let options = ServerOptions::new().appendonly(appendonly);
        let mut server = Server::start(options.clone()).unwrap();
        server.command(&["SET", "k", "older"]).unwrap();
        let snapshot = server.snapshot().unwrap();
        server.command(&["SET", "k", "lost by the failover"]).unwrap();
        let other = Server::start(options.snapshot(&snapshot)).unwrap();
        assert_eq!(get(&other, "k"), bulk("older"));
        let port = server.port();
        server.roll_back_to(&snapshot).unwrap();
        assert_eq!((get(&server, "k"), server.port()), (bulk("older"), port), "{appendonly:?}");
        if appendonly == Appendonly::Always {
            server.command(&["SET", "k", "newer"]).unwrap();
            server.kill().unwrap();
            server.restart().unwrap();
            assert_eq!(get(&server, "k"), bulk("newer"), "what follows a roll-back is appended again");
        }
        let file = snapshot.path();
        assert!(file.exists());
        drop((snapshot, other, server));
        assert!(!file.exists(), "the last snapshot removes its file");
    }
}

#[test]
fn connections_are_killed_but_not_our_own() {
    let server = Server::start(ServerOptions::new()).unwrap();
    let mut client = server.connection().unwrap();
    client.command(&["PING"]).unwrap();
    assert_eq!(server.kill_client_connections().unwrap(), 1);
    assert!(matches!(client.command(&["PING"]), Err(Error::Io { .. })));
}

#[test]
fn flushes_all_data() {
    let server = Server::start(ServerOptions::new()).unwrap();
    server.command(&["XADD", "s", "*", "f", "v"]).unwrap();
    server.flush().unwrap();
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Int(0));
}

#[test]
fn a_password_is_asked_for_and_the_url_carries_it() {
    let server = Server::start(ServerOptions::new().user("worker", r#"p"a:s\s/w@rd"#)).unwrap();
    assert_eq!(server.command(&["PING"]).unwrap(), Reply::Status("PONG".into()));
    assert!(server.url().starts_with("redis://worker:p%22a%3As%5Cs%2Fw%40rd@127.0.0.1:"), "{}", server.url());
    let login = ["AUTH", "worker", r#"p"a:s\s/w@rd"#];
    assert_eq!(server.connection().unwrap().command(&login).unwrap(), Reply::Status("OK".into()));
    match server.command(&["AUTH", "worker", "wrong"]) {
        Err(Error::Refused { message, .. }) => assert!(message.contains("WRONGPASS"), "{message}"),
        other => panic!("a wrong password was answered with {other:?}"),
    }
    assert!(server.command(&["AUTH", "default", "anything"]).is_err(), "the default user is off");
}

#[test]
fn refuses_writes_above_its_memory_limit() {
    let server = Server::start(ServerOptions::new().maxmemory(2_000_000, "noeviction")).unwrap();
    assert_eq!(server.info("memory", "maxmemory_policy").unwrap(), "noeviction");
    let chunk = "x".repeat(100_000);
    let refused = (0..40).find_map(|i| server.command(&["SET", &format!("k{i}"), &chunk]).err());
    assert!(
        matches!(&refused, Some(Error::Refused { message, .. }) if message.contains("OOM")),
        "{refused:?}"
    );
}

#[test]
fn a_bad_configuration_shows_the_servers_own_words() {
    let message = Server::start(ServerOptions::new().line("no-such-setting yes")).unwrap_err().to_string();
    assert!(message.contains("no-such-setting"), "{message}");
}

#[test]
fn a_port_taken_by_a_stranger_is_reported_and_the_data_survives() {
    let mut server = Server::start(ServerOptions::new().appendonly(Appendonly::Always)).unwrap();
    server.command(&["SET", "k", "v"]).unwrap();
    server.kill().unwrap();
    let stranger = TcpListener::bind(("127.0.0.1", server.port())).unwrap();
    let message = server.restart().unwrap_err().to_string();
    assert!(message.contains("Address already in use"), "{message}");
    drop(stranger);
    server.restart().unwrap();
    assert_eq!(get(&server, "k"), bulk("v"));
}

#[test]
fn every_flavor_on_this_machine_starts_restarts_and_rolls_back() {
    let flavors = Flavor::available();
    assert!(!flavors.is_empty());
    for flavor in flavors {
        let options = ServerOptions::new().flavor(flavor).appendonly(Appendonly::Everysec).user("u", "p");
        let mut server = Server::start(options).unwrap();
        eprintln!("{flavor}: version {}", server.version());
        server.command(&["SET", "k", "1"]).unwrap();
        let snapshot = server.snapshot().unwrap();
        server.command(&["SET", "k", "2"]).unwrap();
        server.restart().unwrap();
        assert_eq!(get(&server, "k"), bulk("2"), "{flavor}");
        server.roll_back_to(&snapshot).unwrap();
        assert_eq!(get(&server, "k"), bulk("1"), "{flavor}");
        assert_eq!(server.kill_client_connections().unwrap(), 0, "{flavor}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let server = Server::start(ServerOptions::new().password("hunter2")).unwrap();
    let config = std::fs::read_to_string(server.dir().join("server.conf")).unwrap();
    let admin = config.lines().find(|line| line.starts_with("user testkit")).unwrap();
    let secret = admin.rsplit('>').next().unwrap().trim_end_matches('"');
    let shown = format!("{server:?}");
    assert!(secret.len() == 16 && !shown.contains(secret) && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn dropped_it_leaves_no_process_and_no_directory() {
    for pause in [false, true] {
        let mut server = Server::start(ServerOptions::new().appendonly(Appendonly::Everysec)).unwrap();
        let (pid, dir, port) = (server.pid().unwrap(), server.dir().to_owned(), server.port());
        assert!(dir.exists());
        if pause {
            server.pause().unwrap();
        }
        drop(server);
        assert!(is_dead(pid), "process {pid} lives on (paused: {pause})");
        assert!(!dir.exists(), "{} is still there", dir.display());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

const CHILD: &str = "GRISTMILL_TESTKIT_CHILD";

#[test]
#[ignore = "the child that the next test starts and kills"]
fn child_with_a_paused_server() {
    assert!(env::var_os(CHILD).is_some(), "only for the test below");
    let mut server = Server::start(ServerOptions::new()).unwrap();
    let mut sleeper = Process::spawn("sleep", ["600"], [("A", "b")]).unwrap();
    server.pause().unwrap();
    println!("started {} {} {}", server.pid().unwrap(), sleeper.pid(), server.dir().display());
    let _ = sleeper.wait(Duration::from_secs(600));
}

#[test]
fn everything_dies_with_a_parent_that_is_killed() {
    let args = ["--exact", "child_with_a_paused_server", "--ignored", "--nocapture"];
    let mut parent = Process::spawn(env::current_exe().unwrap(), args, [(CHILD, "1")]).unwrap();
    let line = parent.wait_line(|line| line.text.contains("started "), Duration::from_secs(30)).unwrap();
    let words: Vec<_> = line.text.split("started ").nth(1).unwrap().split(' ').collect();
    let (server, sleeper): (u32, u32) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let dir = PathBuf::from(words[2]);
    assert!(!is_dead(server) && !is_dead(sleeper) && dir.exists());
    parent.signal(gristmill_testkit::process::Signal::SIGKILL).unwrap();
    parent.wait(SOON).unwrap();
    eventually(SOON, "the orphans' end", || (is_dead(server) && is_dead(sleeper)).then_some(()));
    eventually(SOON, "the orphan's directory to be removed", || (!dir.exists()).then_some(()));
}

#[test]
fn its_clock_is_set_while_it_runs_and_stays_set_over_a_restart() {
    if let Err(missing) = ServerOptions::find_faketime() {
        // Past the harness, which keeps to itself what a test that passes prints.
        let _ = writeln!(std::io::stderr(), "SKIPPED a clock that is set: {missing}");
        return;
    }
    for flavor in Flavor::available() {
        let machine = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let time = |server: &Server| {
            let time = server.command(&["TIME"]).unwrap();
            time.as_array().unwrap()[0].as_str().unwrap().parse::<i64>().unwrap()
        };
        // Valkey looks at its clock about once a millisecond.
        let wait_ahead = |server: &Server, wanted: i64| {
            eventually(SOON, &format!("{flavor} to be {wanted} s ahead"), || {
                ((wanted - 1..=wanted + 1).contains(&(time(server) - machine()))).then_some(())
            });
        };
        let mut server = Server::start(ServerOptions::new().flavor(flavor).settable_clock()).unwrap();
        wait_ahead(&server, 0);
        server.command(&["SET", "a", "b", "EX", "5000"]).unwrap();
        server.set_clock(3600).unwrap();
        wait_ahead(&server, 3600);
        let ttl = server.command(&["TTL", "a"]).unwrap().as_int().unwrap();
        assert!((1300..=1400).contains(&ttl), "{flavor}: what expires is by that clock too: {ttl}");
        server.set_clock(-7200).unwrap();
        wait_ahead(&server, -7200);
        let pid = server.pid().unwrap();
        server.restart().unwrap();
        wait_ahead(&server, -7200);
        assert!(!Path::new(&format!("/dev/shm/faketime_shm_{pid}")).exists(), "nothing of the library stays");
    }
    let plain = Server::start(ServerOptions::new()).unwrap();
    assert!(matches!(plain.set_clock(1), Err(Error::BadOption(_))));
}
