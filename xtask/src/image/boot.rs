//! The image, started by podman from what Helm renders of the chart: the arguments, files, variables and rights of a pod, on this
//! machine's network, with a Redis of its own. It gets ready, drains when it is stopped, and leaves with 0.
//!
//! podman reads Kubernetes' objects nearly as a kubelet does. What it does not, in the releases of Debian 12, is mended in
//! the text: a Secret must lie in its own store, with plain values; `optional` must be said; ports of a pod on the host's
//! network are refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::chart;
use crate::child::{self, Failure};
use crate::debian;
use crate::ground;
use crate::servers::{self, Wanted};

const RELEASE: &str = "boot";
const CONTAINER: &str = "boot-gristmill-worker-default-pod-0-gristmill";
const PATIENCE: Duration = Duration::from_secs(60);
/// `crun` wants another layout of control groups than many machines have, and limits may not be raised without rights.
const CONTAINERS: &str = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
     [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";

/// Stopped and removed when it is dropped, whatever happened.
struct Stage {
    folder: PathBuf,
    redis: Option<Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.podman(&["pod", "rm", "--force", "--all"]);
        let _ = self.podman(&["secret", "rm", "boot-gristmill-redis"]);
        if let Some(mut redis) = self.redis.take() {
            let _ = redis.kill();
            let _ = redis.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Boots the image of this tag.
pub(super) fn run(tag: &str) -> Result<(), Failure> {
    if ["podman", "runc"].iter().any(|program| ground::on_path(program).is_none()) {
        debian::install(&["podman", "runc", "catatonit"], "podman is needed to start the image")?;
    }
    let helm = chart::newest_helm()?;
    let servers = servers::ensure(Wanted::Floor)?;
    let redis = servers.floor().ok_or_else(|| Failure::missing("no Redis to boot against"))?;
    let folder = ground::target().join(format!("boot-{}", std::process::id()));
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::missing(format!("{}: {error}", folder.display())))?;
    let mut stage = Stage { folder, redis: None };
    let (redis_port, health_port) = (free_port()?, free_port()?);
    stage.redis = Some(start_redis(redis, redis_port)?);
    let url = format!("redis://127.0.0.1:{redis_port}");
    stage.write("containers.conf", CONTAINERS)?;
    stage.write(
        "secret.yaml",
        &format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: boot-gristmill-redis}}\ndata:\n  url: {url}\n"
        ),
    )?;
    let objects = render(&helm, tag, &url, health_port)?;
    let play = stage.write("play.yaml", &objects)?;

    let secret = stage.folder.join("secret.yaml");
    stage.podman(&["secret", "create", "boot-gristmill-redis", &secret.display().to_string()])?;
    stage.podman(&["kube", "play", &play.display().to_string()])?;
    let address = SocketAddr::from(([127, 0, 0, 1], health_port));
    for path in ["/startupz", "/livez", "/readyz"] {
        stage.wait_for(address, path)?;
    }
    println!("booted from the chart: /startupz, /livez and /readyz answer 200");
    stage.podman(&["stop", "--time", "35", CONTAINER])?;
    let how = "{{.State.ExitCode}} {{.HostConfig.ReadonlyRootfs}} {{.Config.User}} {{len .EffectiveCaps}}";
    let ended = stage.podman(&["inspect", CONTAINER, "--format", how])?;
    let said = stage.podman(&["logs", CONTAINER])?;
    if ended.trim() != "0 true 65532:65532 0" || !said.contains("drained: ") {
        return Err(Failure::missing(format!(
            "expected exit code 0, a read-only root, user 65532 and no capabilities, and a drain; got {ended}\n{said}"
        )));
    }
    println!("drained and left with 0, on a read-only root, as 65532, without a capability");
    Ok(())
}

impl Stage {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| Failure::missing(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    fn podman(&self, arguments: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("podman");
        command
            .args(arguments)
            .env("CONTAINERS_CONF", self.folder.join("containers.conf"))
            .stdin(Stdio::null());
        let output = command.output().map_err(|error| Failure::missing(format!("podman: {error}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(Failure::missing(format!(
                "{}: {}",
                child::spoken(&command),
                text(&output.stderr).lines().take(5).collect::<Vec<_>>().join("\n")
            ))),
        }
    }

    fn wait_for(&self, address: SocketAddr, path: &str) -> Result<(), Failure> {
        let began = Instant::now();
        while !answers(address, path) {
            if began.elapsed() > PATIENCE {
                let said = self.podman(&["logs", CONTAINER]).unwrap_or_default();
                return Err(Failure::missing(format!("no 200 at {path} within {PATIENCE:?}\n{said}")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| Failure::missing(format!("no free port: {error}")))
}

fn start_redis(program: &Path, port: u16) -> Result<Child, Failure> {
    let port = port.to_string();
    let arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| Failure::missing(format!("{}: {error}", program.display())))
}

fn answers(address: SocketAddr, path: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        std::io::Result::Ok(&head == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

/// The pool of workers as Helm renders it, for podman.
fn render(helm: &Path, tag: &str, url: &str, health_port: u16) -> Result<String, Failure> {
    let (repository, tag) = tag.rsplit_once(':').unwrap_or((tag, "latest"));
    let set = [
        format!("redis.url={url}"),
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
        "image.pullPolicy=Never".to_owned(),
        format!("health.port={health_port}"),
        "monitor.enabled=false".to_owned(),
        "worker.replicas=1".to_owned(),
        "worker.queues={boot:8}".to_owned(),
        // A kind, since a node without any refuses to start.
        "config.kinds.boot.http=http://127.0.0.1:1/".to_owned(),
        "pod.template.spec.hostNetwork=true".to_owned(),
    ];
    let mut command = Command::new(helm);
    command.args(["template", RELEASE]).arg(ground::root().join("helm/gristmill"));
    command.args(["--skip-tests"]).args(set.iter().flat_map(|set| ["--set", set]));
    let output = command.output().map_err(|error| Failure::missing(format!("helm: {error}")))?;
    if !output.status.success() {
        return Err(Failure::missing(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(for_podman(&String::from_utf8_lossy(&output.stdout)))
}

fn for_podman(objects: &str) -> String {
    let kept = objects.split("\n---\n").filter(|object| !object.contains("\nkind: Secret\n"));
    let text = kept.collect::<Vec<_>>().join("\n---\n");
    let (mut lines, mut skipping) = (Vec::new(), None);
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if skipping
            .is_some_and(|from| indent > from || (indent == from && line.trim_start().starts_with('-')))
        {
            continue;
        }
        skipping = (line.trim() == "ports:").then_some(indent);
        if skipping.is_some() {
            continue;
        }
        lines.push(line.to_owned());
        if line.trim_start().starts_with("secretName: ") {
            lines.push(format!("{}optional: false", " ".repeat(indent)));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_ports_go_and_optional_is_said() {
        let objects = "a: 1\n---\nx: 1\nkind: Secret\nz: 1\n---\n  ports:\n  - name: a\n    port: 1\n  b: 2\n  secretName: s\nend: 1";
        assert_eq!(for_podman(objects), "a: 1\n---\n  b: 2\n  secretName: s\n  optional: false\nend: 1");
    }
}
