//! Scripts: loaded once per connection, called by their hash.

use redis::Cmd;
use std::sync::LazyLock;

/// One Lua script and its hash.
pub(crate) struct Script {
    source: &'static str,
    hash: LazyLock<String, fn() -> String>,
}

macro_rules! source {
    ($file:literal) => {
        include_str!($file)
    };
    ($file:literal with $first:literal) => {
        concat!(include_str!($first), include_str!($file))
    };
}

macro_rules! scripts {
    ($($name:ident = $file:literal $(with $first:literal)?),* $(,)?) => {
        $(pub(crate) static $name: Script = Script {
            source: source!($file $(with $first)?),
            hash: LazyLock::new(|| redis::Script::new(source!($file $(with $first)?)).get_hash().to_owned()),
        };)*
        /// Every script, to be loaded when a connection is made.
        pub(crate) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    ACQUIRE = "lua/acquire.lua",
    ANNOUNCE = "lua/announce.lua",
    AUDIT_NOTE = "lua/audit.lua",
    ADMIT = "lua/admit.lua",
    ABSOLVE = "lua/absolve.lua" with "lua/state.lua",
    CANCEL = "lua/cancel.lua" with "lua/state.lua",
    CENSUS = "lua/census.lua",
    CLAIM = "lua/claim.lua",
    CREATE = "lua/create.lua",
    DEAD = "lua/dead.lua",
    DEFINE = "lua/define.lua" with "lua/schedule.lua",
    DISCARD = "lua/discard.lua",
    ENQUEUE = "lua/enqueue.lua",
    FIRE = "lua/fire.lua" with "lua/schedule.lua",
    EXTEND = "lua/extend.lua" with "lua/state.lua",
    FORWARD = "lua/forward.lua",
    FREE = "lua/free.lua",
    GRAB = "lua/grab.lua",
    HAND_BACK = "lua/hand_back.lua" with "lua/state.lua",
    KEEP = "lua/keep.lua",
    LIMIT = "lua/limit.lua",
    LENGTH_LIMIT = "lua/length_limit.lua",
    LOOK = "lua/look.lua" with "lua/state.lua",
    PAUSE_SCHEDULE = "lua/pause_schedule.lua" with "lua/schedule.lua",
    PAUSE = "lua/pause.lua",
    PAUSES = "lua/pauses.lua",
    PROMOTE = "lua/promote.lua",
    PURGE = "lua/purge.lua",
    PURGEABLE = "lua/purgeable.lua",
    RECLAIM = "lua/reclaim.lua" with "lua/state.lua",
    RECOVER = "lua/recover.lua" with "lua/state.lua",
    RELEASE = "lua/release.lua",
    RELEASE_KEY = "lua/release_key.lua" with "lua/state.lua",
    REMOVE_SCHEDULE = "lua/remove_schedule.lua" with "lua/schedule.lua",
    RENEW = "lua/renew.lua",
    RESUME = "lua/resume.lua",
    REPLAY = "lua/replay.lua" with "lua/state.lua",
    RESUME_SCHEDULE = "lua/resume_schedule.lua" with "lua/schedule.lua",
    SETTLE = "lua/settle.lua" with "lua/state.lua",
    SKIP = "lua/skip.lua" with "lua/state.lua",
    START = "lua/start.lua" with "lua/state.lua",
    SURVEY = "lua/survey.lua",
    TAKE = "lua/take.lua" with "lua/state.lua",
    WAITING = "lua/waiting.lua",
    WANT = "lua/want.lua",
}

impl Script {
    /// `EVALSHA` with its keys; the arguments are appended by the caller.
    pub(crate) fn call(&self, keys: &[&[u8]]) -> Cmd {
        let mut command = self.call_sized(keys.len(), 8, 256);
        for key in keys {
            command.arg(*key);
        }
        command
    }

    /// `EVALSHA` for `keys` keys, which the caller appends before the arguments.
    pub(crate) fn call_sized(&self, keys: usize, arguments: usize, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(3 + keys + arguments, 64 + bytes);
        command.arg("EVALSHA").arg(self.hash.as_str()).arg(keys);
        command
    }

    /// `SCRIPT LOAD`.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}
