//! The promises, one file each. Every test has a private server, real node processes and real signals; what happened is
//! read from the histories that the handlers wrote, and from Redis.
//!
//! | file | promise |
//! |---|---|
//! | `no_job_is_lost` | whatever dies, every job ends by its handler or as a dead letter |
//! | `effects_apply_once` | whatever is repeated, killed or left without an answer, an entity changes once per job |
//! | `keys_stay_in_order` | the jobs of a key succeed one at a time, in the order of their places |
//! | `one_owner_per_partition` | partitions move by request, in order, without an expiry; none is left alone |
//! | `stale_owner_is_fenced` | who was stopped past its lease changes nothing any more |
//! | `drain_keeps_its_window` | what runs may finish, the rest is laid down uncharged, and the process is gone in time |
//! | `redis_may_fail` | restarted, paused, full, flushed or tampered with: nothing kept is lost, doubled or stuck |
//! | `a_blocked_key_costs_others_nothing` | a hot key, and one whose head waits, are parked and fill no window |
//! | `a_held_key_waits_for_a_person` | where its queue says so, through kills and drains; what a person does is heard soon, in order, once |
//! | `what_is_paused_waits` | a queue, a kind or a key, through load, kills, hand-overs and reconnects; then everything in order |
//! | `what_is_cancelled_ends` | in the middle of a key, running, or its owner killed; once, and its key goes on |
//! | `what_is_purged_is_gone` | beside running producers and nodes; what was enqueued after it is kept and runs, in order, once |
//! | `what_is_too_late_does_not_start` | behind a key that waits, or where no node was there; its key goes on; what a person brings back is asked for |
//! | `a_poison_job_dies_alone` | dead after its budget of crashes and two more deaths, with no other job charged |
//! | `an_interrupted_run_is_not_repeated` | where its kind says so: a function looks, a person does, or it ran at most once |
//! | `a_stuck_handler_costs_one_slot` | one that blocks its thread is given up and named; too many end the node, not the jobs |
//! | `failures_are_sorted` | snoozed uncharged, discarded without a trace, stopped at its limit and charged; tried again within budget and age; a letter that tells it all |
//! | `failures_come_together` | poison, kills, pauses, drains and people's acts at once end every job where it is expected |
//! | `every_slot_has_one_job` | a slot of a schedule, under any number of nodes, kills, pauses, a clock that jumps, deploys that change it |
//! | `the_clock_may_jump` | the clock of Redis, hours forward and back, under schedules, leases, jobs for later, claims and limits |
//! | `what_cannot_be_read_ends_clearly` | refused with words, run, or a dead letter with its raw bytes; what stands beside it goes on |
//! | `jobs_come_when_due` | jobs for later run in the order of due time and enqueue, never early, once each, whoever dies |
//! | `batches_answer_for_each_job` | jobs that are handled together end each by its own answer, in the order of their keys, whoever dies |
//! | `limits_hold_across_the_fleet` | no more run at a time, or in a stretch of time, than the limit says, whoever dies or pauses; no slot leaks; a flooded queue keeps no other waiting |
//! | `without_order_people_are_heard` | where the ordering is none: cancel, expiry, pause and purge hold there as well |
//! | `without_order_every_slot_is_used` | where the ordering is none: any node with a free slot takes what comes, once; what a dead or slow one held is taken over |
//! | `without_order_limits_hold` | where the ordering is none: no more run at a time, or in a stretch of time, than the limit says; a freed slot is used soon, and what waits keeps no other kind, and no idle node, waiting |
//! | `without_order_batches_answer_for_each_job` | where the ordering is none: batches are killed, stand still and leave, and each of their jobs ends once |
//! | `without_order_an_interrupted_run_is_not_repeated` | where the ordering is none: review, reconcile and at most once hold through kills, stand-stills and drains |
//! | `without_order_every_slot_has_one_job` | where the ordering is none: so does a slot of a schedule there |
//! | `without_order_jobs_come_when_due` | where the ordering is none: jobs for later run never early, once each, whoever dies or stands still |
//! | `failover_to_an_older_state` | what survives is settled, once, in order |
//!
//! Every test runs on Redis 7, with `GRISTMILL_TEST_ALL=1` on every server; one kill, one pause (of a node, and of the server),
//! one drain, and a few of each way to fail run on every server always. Two groups of processes live at a time. `GRISTMILL_SEED` repeats a random run;
//! `GRISTMILL_TEST_KEEP=FOLDER` keeps logs and histories of a test that failed.
//!
//! # Where each trace that breaks a simpler design is shown not to break this one
//!
//! On real processes (here), on the scripts alone (`contract`, a test of gristmill-broker), and on the pure machines of the
//! node (`simulation`, `plan_tests`, `lanes_tests`: tens of thousands of interleavings).
//!
//! | trace | shown by |
//! |---|---|
//! | V1 lost answer of a claim | `keys_stay_in_order::when_the_answer_of_a_claim_is_lost`, `keys_stay_in_order::when_connections_break_right_behind_claims`, `late::v1_a_claim_whose_answer_is_lost_is_found_by_the_next_tenure` |
//! | V2 own late claim | `keys_stay_in_order::when_a_claim_of_the_connection_before_arrives_late`, `late::v2_a_late_claim_of_an_old_tenure_reads_nothing` |
//! | V3 same owner, same epoch | `one_owner_per_partition::a_release_that_arrives_late_frees_nothing`, `late::v3_a_late_release_frees_no_later_epoch` |
//! | V7 recover after a hand-over | `drain_keeps_its_window::what_runs_finishes_and_what_waits_is_handed_back_uncharged`, `traces::v7_what_was_handed_back_is_recovered` |
//! | V8 a lease comes back | `one_owner_per_partition::a_lease_that_comes_back_starts_nothing_beside_the_run_from_before`, `lanes_tests::a_key_whose_old_run_lives_is_not_started` |
//! | V9 failover inside a tenure | `failover_to_an_older_state::that_the_node_sees`, `failover_to_an_older_state::that_a_proxy_hides`, `late::v9_calls_that_follow_lost_ones_do_nothing` |
//! | V10 a result of the lost history | `failover_to_an_older_state::a_result_of_the_lost_history_does_not_overtake`, `simulation::failovers_to_an_older_state` |
//! | V11 an old answer late | `keys_stay_in_order::when_answers_come_late_in_bulk`, `simulation::lost_answers` |
//! | V12 a wish without an end | `one_owner_per_partition::a_wish_ends_with_the_node_that_had_it`, `traces::v12_a_wish_ends_with_its_time_and_with_the_next_acquire` |
//! | V13 full memory | `redis_may_fail::full_memory_stops_enqueue_and_nothing_else`, `memory::v13_everything_but_enqueue_works_when_memory_is_full` |
//! | V14 the same epoch twice | `late::v14_an_acquire_after_a_failover_is_above_every_epoch_held_before` (a clock that goes back under running nodes: `the_clock_may_jump::hours_forward_and_back_under_load_cost_recoveries_and_nothing_else`) |
//! | V15 put back without a charge | `failures_are_sorted::a_snoozed_job_runs_again_uncharged_and_before_the_next_of_its_key`, `traces::v15_every_put_back_is_another_turn` |
//! | V16 hand back | `drain_keeps_its_window::a_run_that_ignores_its_cancellation_is_stopped_and_handed_back`, `traces::v16_a_hand_back_does_not_change_the_turn` |
//! | V17 a second life | `a_held_key_waits_for_a_person::again_where_the_replayed_job_dies_again`, `a_held_key_waits_for_a_person::until_its_letter_is_replayed_which_runs_before_newer_ones_and_once`, `traces::v17_a_second_dead_letter_of_an_id_does_not_overwrite_the_first` |
//! | V18 a repeated retry | `effects_apply_once::a_retry_whose_answer_is_lost_is_charged_once`, `traces::v18_a_repeated_retry_is_charged_once` |
//! | V19 parked jobs keep their places | `a_blocked_key_costs_others_nothing::parked_jobs_run_in_order_when_their_head_succeeds_also_after_a_kill` |
//! | V20 a new owner knows of them | the same, and `a_held_key_waits_for_a_person::through_a_kill_and_a_drain_and_others_go_on` |
//! | V22 a hold in memory | `a_held_key_waits_for_a_person::through_a_kill_and_a_drain_and_others_go_on`, `returned::take_reads_held_keys_in_slices` |
//! | V23 a hold outlives its letter | `a_held_key_waits_for_a_person::until_its_letter_is_discarded`, `a_held_key_waits_for_a_person::no_longer_than_until_the_count_where_its_letter_was_deleted_by_hand`, `people::a_discarded_letter_frees_its_key_and_forgets_the_first_envelope` |
//! | V24 the owner is told | every test of `a_held_key_waits_for_a_person` in which a person acts; `a_held_key_waits_for_a_person::a_key_in_backoff_goes_on_when_a_person_passes_over_its_job` |
//! | V26 a returned job is in no pending list | `a_poison_job_dies_alone::one_that_came_back_from_the_dead_is_found_too`, `returned::v26_take_finds_the_marks_of_the_dead` |
//! | V27 blocked heads fill the window | `a_blocked_key_costs_others_nothing::keys_in_backoff_do_not_fill_the_window_of_their_partition`, `a_blocked_key_costs_others_nothing::keys_over_the_retry_budget_do_not_fill_the_window_of_their_partition`, `a_held_key_waits_for_a_person::through_a_kill_and_a_drain_and_others_go_on` |
//! | V28 one at a time per partition | `a_poison_job_dies_alone::one_that_aborts_among_two_hundred_good_ones`, `a_poison_job_dies_alone::two_of_them_are_charged_each_for_its_own_deaths`, `suspects::v28_a_mark_of_a_lone_run_is_charged_once_and_names_the_run` |
//! | V29 others beside it | the same, and `suspects::v29_a_mark_of_a_run_beside_others_raises_suspicion_by_one_step_and_charges_nothing` |
//! | V30 suspicion in memory | `a_poison_job_dies_alone::a_drain_between_two_deaths_forgets_no_suspicion`, `suspects::v30_what_a_dead_owner_held_unmarked_is_a_weak_suspect_where_it_was_first_of_its_key` |
//! | V31 a mark left behind | `a_poison_job_dies_alone::a_drain_between_two_deaths_forgets_no_suspicion`, `suspects::v31_every_settle_and_every_hand_back_removes_the_mark` |
//! | V32 a lost lease under a mark | `a_poison_job_dies_alone::a_charge_for_a_pause_is_taken_back`, `failures_come_together::pauses_past_the_lease_among_suspects`, `absolve::v32_a_node_that_lives_takes_back_its_mark_or_its_charge_once` |
//! | V33 review and reconcile | `an_interrupted_run_is_not_repeated::of_a_kind_that_says_review_goes_to_a_person_and_what_was_merely_claimed_does_not`, `an_interrupted_run_is_not_repeated::of_a_kind_that_says_review_that_a_drain_stops_goes_to_a_person`, `an_interrupted_run_is_not_repeated::of_a_kind_that_says_review_runs_once_although_connections_break`, `an_interrupted_run_is_not_repeated::a_look_that_finds_it_done_settles_it_with_what_it_found`, `suspects::v33_a_run_that_was_stopped_hard_is_noted_as_interrupted` |
//! | V34 a waiting mark | `effects_apply_once::an_id_that_is_enqueued_again_before_or_after_its_verdict_changes_nothing`, `traces::v34_a_waiting_mark_is_no_effect` |
//! | V35 a window from the verdict | `effects_apply_once::an_id_that_is_enqueued_again_before_or_after_its_verdict_changes_nothing`, `traces::v35_a_mark_lives_as_long_as_its_job_and_a_window_after` |
//! | V37 a group made late | `redis_may_fail::the_group_is_deleted_by_hand`, `redis_may_fail::flushed_under_running_nodes`, `traces::v37_a_new_group_starts_at_the_beginning` |
//! | V38 nobody may take it | `one_owner_per_partition::the_partitions_of_a_node_that_drains_are_taken_before_it_is_gone`, `plan_tests::a_partition_that_nobody_serves_is_taken_above_the_cap_after_two_lease_times` |
//! | V39 one bad job in a batch | `effects_apply_once::a_job_whose_effect_cannot_be_written_harms_no_other`, `traces::v39_one_bad_job_harms_no_other_of_its_batch` |
//! | V40 released with a run alive | `drain_keeps_its_window::a_run_that_blocks_its_thread_is_abandoned_in_time` |
//! | V41 emitted jobs by random ids | `effects_apply_once::emitted_jobs_arrive_once_although_the_node_dies_between_settle_and_forward`, `effects_apply_once::emitted_jobs_arrive_once_although_the_node_dies_between_forward_and_its_note`, `traces::v41_a_rerun_emits_the_same_ids_and_they_are_absorbed` |
//!
//! V4 to V6 belong to a plain claim, which is not used: `late::v4_a_claim_cut_in_half_by_another_owner_reads_nothing`. V21 belongs
//! to a call that parks; what is parked here stays claimed. V25: `what_is_cancelled_ends::a_run_that_finishes_all_the_same_wins`,
//! `cancel::a_run_that_finished_wins_and_one_that_failed_is_still_asked_for`. V36:
//! `cancel::what_nobody_claimed_is_gone_at_once_and_its_id_starts_anew`; of purge: `what_is_purged_is_gone::under_load_and_what_came_later_runs`,
//! `purge::v36_what_waits_is_gone_with_its_mark_and_its_id_may_come_again`; of a person's discard: `dead::v36_a_discarded_letter_is_gone_and_its_id_starts_anew`.
//!
//! Bad input, beside `what_cannot_be_read_ends_clearly`: raw garbage, missing fields and names that are no text in
//! `no_job_is_lost::what_cannot_be_decoded_becomes_a_dead_letter_and_stops_no_reader`; versions that go backwards in
//! `effects_apply_once::a_version_that_is_not_newer_changes_nothing`; a kind nobody serves in
//! `no_job_is_lost::a_kind_that_nobody_knows_is_dead_and_its_key_goes_on`; a lease, a group or a stream deleted by hand in
//! `redis_may_fail::the_lease_is_deleted_by_hand`, `redis_may_fail::the_group_is_deleted_by_hand`,
//! `redis_may_fail::the_stream_is_deleted_by_hand`; returned jobs without a record in
//! `damage::returned_jobs_without_a_readable_record_are_taken_and_settled`; a clock set back in
//! `late::v14_an_acquire_after_a_failover_is_above_every_epoch_held_before` and
//! `redis_may_fail::a_clock_set_back_leaves_no_partition_to_the_dead_and_no_name_of_theirs`; one that is really set, in `the_clock_may_jump`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where it stands")]

mod a_blocked_key_costs_others_nothing;
mod a_held_key_waits_for_a_person;
mod a_poison_job_dies_alone;
mod a_stuck_handler_costs_one_slot;
mod an_interrupted_run_is_not_repeated;
mod batches_answer_for_each_job;
mod drain_keeps_its_window;
mod effects_apply_once;
mod every_slot_has_one_job;
mod failover_to_an_older_state;
mod failures_are_sorted;
mod failures_come_together;
mod index;
mod jobs_come_when_due;
mod keys_stay_in_order;
mod limits_hold_across_the_fleet;
mod no_job_is_lost;
mod one_owner_per_partition;
mod redis_may_fail;
mod stale_owner_is_fenced;
mod the_clock_may_jump;
mod what_cannot_be_read_ends_clearly;
mod what_is_cancelled_ends;
mod what_is_paused_waits;
mod what_is_purged_is_gone;
mod what_is_too_late_does_not_start;
mod without_order_an_interrupted_run_is_not_repeated;
mod without_order_batches_answer_for_each_job;
mod without_order_every_slot_has_one_job;
mod without_order_every_slot_is_used;
mod without_order_jobs_come_when_due;
mod without_order_limits_hold;
mod without_order_people_are_heard;
