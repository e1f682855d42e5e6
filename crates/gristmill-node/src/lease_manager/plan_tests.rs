use super::*;

const TTL: Duration = Duration::from_secs(5);

fn node(n: u64) -> Incarnation {
    Incarnation::of("n", n)
}

fn member(n: u64, since: Duration) -> Member {
    Member { incarnation: node(n), since, draining: false }
}

fn plan(me: u64) -> (Plan, Instant) {
    let now = Instant::now();
    (Plan::new(node(me), TTL, 8, now), now)
}

fn held(owner: u64, left: Duration) -> Look {
    Look::Held { owner: node(owner), left, wanted_by: None }
}

#[test]
fn nothing_is_asked_before_the_members_are_known_and_then_everything_when_alone() {
    let (mut plan, now) = plan(1);
    assert!(plan.ask(now).is_empty());
    plan.members(vec![member(1, Duration::ZERO)]);
    assert_eq!(plan.ask(now).len(), 8);
    assert!(plan.ask(now).is_empty(), "what was asked is not asked again before its answer");
    for partition in 0..8 {
        plan.looked(partition, Look::Mine, now);
    }
    assert_eq!(plan.busy(), 8);
    assert!(plan.ask(now + TTL * 10).is_empty());
}

#[test]
fn a_newcomer_takes_what_is_free_and_wants_what_is_held_only_once_it_has_been_stable() {
    let (mut plan, now) = plan(2);
    plan.members(vec![member(1, TTL), member(2, Duration::ZERO)]);
    let asked = plan.ask(now);
    assert!(!asked.is_empty() && asked.len() <= 4 && asked.iter().all(|ask| matches!(ask, Ask::Serve(_))));
    for ask in &asked {
        if let Ask::Serve(partition) = ask {
            plan.looked(*partition, held(1, TTL), now);
        }
    }
    assert!(plan.ask(now).is_empty());
    let later = now + TTL;
    plan.members(vec![member(1, TTL), member(2, TTL)]);
    let wishes = plan.ask(later).iter().filter(|ask| matches!(ask, Ask::Want(_))).count();
    assert_eq!(wishes, asked.len());
}

#[test]
fn a_dead_owner_is_not_asked_and_its_partition_is_looked_at_when_it_expires() {
    let (mut plan, now) = plan(1);
    plan.members(vec![member(1, TTL)]);
    plan.ask(now);
    plan.looked(3, held(9, Duration::from_millis(100)), now);
    assert!(plan.ask(now + Duration::from_millis(50)).is_empty());
    assert_eq!(
        plan.ask(now + Duration::from_millis(120)),
        [Ask::Serve(3)],
        "not wanted: its owner is no member"
    );
}

#[test]
fn a_partition_that_nobody_serves_is_taken_above_the_cap_after_two_lease_times() {
    let (mut plan, now) = plan(1);
    plan.members(vec![member(1, TTL), member(2, TTL)]);
    let mine = plan.ask(now).len();
    assert!(mine < 8);
    plan.owners(&[false; 8], now);
    plan.owners(&[false; 8], now + TTL);
    assert!(plan.ask(now + TTL).is_empty());
    assert_eq!(plan.ask(now + TTL * 2).len(), 8, "asked again, and what is another's by assignment too");
}

#[test]
fn a_draining_node_asks_for_nothing_and_counts_for_nobody() {
    let (mut plan, now) = plan(1);
    let mut leaving = member(2, TTL);
    leaving.draining = true;
    plan.members(vec![member(1, TTL), leaving]);
    assert_eq!(plan.ask(now).len(), 8);
    plan.drain();
    assert!(plan.ask(now + TTL * 10).is_empty());
}

#[test]
fn a_partition_handed_over_to_one_who_left_is_taken_back_within_a_second() {
    let (mut plan, now) = plan(1);
    plan.members(vec![member(1, TTL), member(2, TTL)]);
    for ask in plan.ask(now) {
        if let Ask::Serve(partition) = ask {
            plan.looked(partition, Look::Mine, now);
        }
    }
    // 2 wanted it before a third node went; now it is meant for 1, and has been released all the same.
    plan.members(vec![member(1, TTL)]);
    let mine = (0..8).find(|p| plan.partitions[*p].status == Status::Mine).unwrap();
    plan.looked(u16::try_from(mine).unwrap(), Look::Idle { end: None, released: true }, now);
    let asked = |plan: &mut Plan, at| plan.ask(at).contains(&Ask::Serve(u16::try_from(mine).unwrap()));
    assert!(!asked(&mut plan, now + LONGEST_LOOK * 2), "who wanted it comes first");
    assert!(asked(&mut plan, now + Duration::from_secs(1)));
}

#[test]
fn eight_partitions_of_an_owner_move_at_a_time_and_a_stuck_one_does_not_hold_the_others_back() {
    let now = Instant::now();
    let mut plan = Plan::new(node(2), TTL, 64, now);
    plan.members(vec![member(1, TTL), member(2, TTL)]);
    let mut wanted = std::collections::BTreeSet::new();
    let mut look = |plan: &mut Plan, now: Instant| {
        for ask in plan.ask(now) {
            match ask {
                Ask::Want(partition) => drop(wanted.insert(partition)),
                Ask::Serve(partition) => plan.looked(partition, held(1, TTL), now),
            }
        }
        wanted.len()
    };
    assert_eq!(look(&mut plan, now), 0, "nothing is known of an owner yet");
    let step = Duration::from_millis(450);
    assert_eq!(look(&mut plan, now + step), 8);
    assert_eq!(look(&mut plan, now + step * 2), 8, "those eight move");
    // A long run holds all of them back: others move meanwhile.
    assert_eq!(look(&mut plan, now + step + MOVE_PATIENCE + step), 16);
}
