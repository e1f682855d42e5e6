//! From which release on a line of versions has its known holes mended. What matters here are holes that someone who
//! may enqueue or run a script can use; the table says which were looked at and when.

/// The month this table was made; releases after it are not known here.
const LOOKED_AT: &str = "November 2026";

/// One line of versions: product, line, the release that mends everything in the note, what that is.
type Level = (Product, (u32, u32), u32, &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    Redis,
    Valkey,
}

const LUA_2025: &str = "CVE-2025-49844, -46817, -46818, -46819 (Lua scripts)";
const LUA_2026: &str = "CVE-2025-49844 and others, CVE-2026-23631 (Lua scripts)";
const LUA_2026_AND_XACKDEL: &str =
    "CVE-2025-49844 and others, CVE-2026-23631 (Lua scripts), CVE-2025-62507 (XACKDEL)";

const LEVELS: &[Level] = &[
    (Product::Redis, (7, 2), 11, LUA_2025),
    (Product::Redis, (7, 4), 9, LUA_2026),
    (Product::Redis, (8, 0), 4, LUA_2025),
    (Product::Redis, (8, 2), 6, LUA_2026_AND_XACKDEL),
    (Product::Redis, (8, 4), 3, LUA_2026),
    (Product::Redis, (8, 6), 3, LUA_2026),
    (Product::Valkey, (7, 2), 11, LUA_2025),
    (Product::Valkey, (8, 0), 6, LUA_2025),
    (Product::Valkey, (8, 1), 4, LUA_2025),
];

/// What is to be said about a release.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Older than anything we run on.
    TooOld,
    /// A later release of its line mends holes: which release, and which holes.
    Behind(String, &'static str),
    /// A line that its makers no longer mend; only a distributor may.
    Abandoned(&'static str),
    /// Nothing is known against it.
    Fine,
}

pub(super) fn judge(product: Product, version: (u32, u32, u32)) -> Verdict {
    let (major, minor, patch) = version;
    if (major, minor) < (7, 0) {
        return Verdict::TooOld;
    }
    let level = LEVELS.iter().find(|(of, line, ..)| *of == product && *line == (major, minor));
    match level {
        Some((.., mended, holes)) if patch < *mended => {
            Verdict::Behind(format!("{major}.{minor}.{mended}"), holes)
        }
        Some(_) => Verdict::Fine,
        None if product == Product::Redis && (major, minor) == (7, 0) => Verdict::Abandoned(LUA_2026),
        None => Verdict::Fine,
    }
}

/// `7.0.15`; a part that is missing is 0.
pub(super) fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(['.', '-']);
    let mut next = || parts.next().map_or(Some(0), |part| part.parse().ok());
    Some((next()?, next()?, next().unwrap_or(0)))
}

pub(super) fn looked_at() -> &'static str {
    LOOKED_AT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_judged_by_its_own_line() {
        let level = |product, text| judge(product, parse(text).unwrap());
        assert_eq!(level(Product::Redis, "6.2.20"), Verdict::TooOld);
        assert_eq!(level(Product::Redis, "7.0.15"), Verdict::Abandoned(LUA_2026));
        assert_eq!(level(Product::Redis, "8.2.2"), Verdict::Behind("8.2.6".into(), LUA_2026_AND_XACKDEL));
        assert_eq!(level(Product::Redis, "8.2.6"), Verdict::Fine);
        assert_eq!(level(Product::Redis, "7.4.8"), Verdict::Behind("7.4.9".into(), LUA_2026));
        assert_eq!(level(Product::Redis, "8.8.0"), Verdict::Fine);
        assert_eq!(level(Product::Valkey, "8.1.3"), Verdict::Behind("8.1.4".into(), LUA_2025));
        assert_eq!(level(Product::Valkey, "9.1.0"), Verdict::Fine);
        assert_eq!(parse("8.0-rc1"), Some((8, 0, 0)));
        assert_eq!(parse("unstable"), None);
    }
}
