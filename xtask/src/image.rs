//! `cargo xtask image`: the image of the program, from a static binary, and with `--check` two of them that must be the same
//! and one that must start where nothing may be written.
//!
//! `boot`: and with `--boot` one that is started from the chart.
//!
//! Nothing of this machine gets in: paths are remapped, files have the time 0, the base is empty.

mod boot;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const TAG: &str = "localhost/gristmill:dev";
/// Who the program is inside: a user and a group without a name on any other machine.
const PASSWD: &str = "gristmill:x:65532:65532:gristmill:/:/gristmill\n";
const GROUP: &str = "gristmill:x:65532:\n";
/// Where Debian keeps the authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    tag: String,
    layout_only: bool,
    check: bool,
    boot: bool,
}

pub(crate) fn run(args: &[OsString]) -> Result<(), Failure> {
    let request = parse(args)?;
    debian::c_compiler()?;
    let folder = lay_out()?;
    if request.layout_only {
        println!("{}", folder.display());
        return Ok(());
    }
    let builder = Builder::find()?;
    let id = builder.build(&request.tag, &folder)?;
    println!("{} {id}", request.tag);
    if request.check {
        let again = builder.build(&format!("{}-again", request.tag), &folder)?;
        if again != id {
            return Err(Failure::missing(format!("two builds gave two images: {id} and {again}")));
        }
        println!("built twice, the same image");
        starts(&folder)?;
    }
    if request.boot {
        boot::run(&request.tag)?;
    }
    Ok(())
}

fn parse(args: &[OsString]) -> Result<Request, Failure> {
    let mut request = Request { tag: TAG.into(), layout_only: false, check: false, boot: false };
    let mut args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--check" => request.check = true,
            "--boot" => request.boot = true,
            "--layout-only" => request.layout_only = true,
            "--tag" => {
                request.tag = args.next().ok_or_else(|| Failure::usage("--tag needs a name"))?;
            }
            other => {
                return Err(Failure::usage(format!(
                    "`image` knows --tag NAME, --layout-only, --check and --boot, not `{other}`"
                )));
            }
        }
    }
    Ok(request)
}

/// The folder that the Containerfile reads.
fn lay_out() -> Result<PathBuf, Failure> {
    let root = ground::root();
    // Symbols and messages name source files; without this they would name this machine's folders.
    let home = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()));
    let flags = format!(
        "-C target-feature=+crt-static -C strip=symbols --remap-path-prefix={}=/gristmill --remap-path-prefix={home}=/cargo",
        root.display()
    );
    let mut build = ground::cargo();
    build.current_dir(&root).env("RUSTFLAGS", flags);
    // The target is named, or what runs at build time would be linked in the same way.
    build.args([
        "build",
        "--release",
        "--locked",
        "--target",
        TARGET,
        "--package",
        "gristmill-cli",
        "--bin",
        "gristmill",
    ]);
    child::pass_through(&mut build)?;

    if !Path::new(AUTHORITIES).is_file() {
        debian::install(&["ca-certificates"], "the authorities that TLS trusts are needed in the image")?;
    }
    let folder = ground::target().join("image");
    let trouble = |error: std::io::Error| {
        Failure::missing(format!("the layout in {} cannot be made: {error}", folder.display()))
    };
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(trouble)?;
    let binary = ground::target().join(TARGET).join("release/gristmill");
    fs::copy(binary, folder.join("gristmill")).map_err(trouble)?;
    fs::copy(AUTHORITIES, folder.join("ca-certificates.crt")).map_err(trouble)?;
    fs::write(folder.join("passwd"), PASSWD).map_err(trouble)?;
    fs::write(folder.join("group"), GROUP).map_err(trouble)?;
    Ok(folder)
}

/// What builds images here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Builder {
    Buildah,
    Docker,
}

impl Builder {
    /// buildah wherever it is or can be installed; docker where only that is there and its engine runs.
    fn find() -> Result<Self, Failure> {
        if ground::on_path("buildah").is_some() {
            return Ok(Self::Buildah);
        }
        if child::answer("docker", &["info"]).is_some() {
            return Ok(Self::Docker);
        }
        debian::install(&["buildah"], "a builder of images is needed")?;
        Ok(Self::Buildah)
    }

    /// Builds, and gives the image's id.
    fn build(self, tag: &str, folder: &Path) -> Result<String, Failure> {
        let file = ground::root().join("Containerfile");
        let mut command = match self {
            Self::Buildah => {
                let mut command = Command::new("buildah");
                // Without a layer of another build, and without namespaces that this machine may not have.
                command.args(["bud", "--quiet", "--no-cache", "--isolation", "chroot", "--timestamp", "0"]);
                command
            }
            Self::Docker => {
                let mut command = Command::new("docker");
                command.args(["build", "--quiet", "--no-cache"]).env("SOURCE_DATE_EPOCH", "0");
                command
            }
        };
        command.args(["--tag", tag, "--file"]).arg(file).arg(folder);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output =
            output.map_err(|error| Failure::missing(format!("the builder cannot be started: {error}")))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(Failure::missing(format!("failed: {}", child::spoken(&command)))),
        }
    }
}

/// The program starts in a folder that holds nothing but the image's files, as the image's user, with nothing to write to.
fn starts(folder: &Path) -> Result<(), Failure> {
    if ground::on_path("bwrap").is_none() {
        debian::install(&["bubblewrap"], "a sandbox is needed to start the image's program")?;
    }
    let binary = folder.join("gristmill");
    let size = fs::metadata(&binary).map_or(0, |file| file.len());
    let mut sandbox = Command::new("bwrap");
    sandbox.args(["--unshare-all", "--uid", "65532", "--gid", "65532", "--cap-drop", "ALL", "--ro-bind"]);
    sandbox.arg(&binary).args(["/gristmill", "--remount-ro", "/", "--chdir", "/", "--clearenv"]);
    sandbox.args(["/gristmill", "config", "check"]);
    child::pass_through(&mut sandbox)?;
    println!("starts alone, read-only and without rights; {} KiB", size >> 10);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &str) -> Result<Request, Failure> {
        parse(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read_and_others_refused() {
        let all = request("--tag a:b --check --boot --layout-only").unwrap();
        assert_eq!(all, Request { tag: "a:b".into(), layout_only: true, check: true, boot: true });
        assert_eq!(request("").unwrap().tag, TAG);
        assert_eq!(request("--tag").unwrap_err().code, 2);
        assert!(request("--push").unwrap_err().text.unwrap().contains("--push"));
    }

    #[test]
    fn the_image_holds_what_is_laid_out_and_runs_as_nobody_in_particular() {
        let file = fs::read_to_string(ground::root().join("Containerfile")).unwrap();
        for name in ["passwd", "group", "ca-certificates.crt", "gristmill"] {
            assert!(file.lines().any(|line| line.starts_with("COPY ") && line.contains(name)), "{name}");
        }
        assert!(file.contains("\nFROM scratch\n") && file.contains("\nUSER 65532:65532\n"));
        assert!(PASSWD.contains(":65532:65532:") && GROUP.contains(":65532:"));
    }
}
