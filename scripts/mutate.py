"""The changes of scripts/mutate: file, text, replacement, package, test."""
import subprocess
import sys
from pathlib import Path

MUTATIONS = [
    # leases and epochs
    ("domain/src/lease.rs", "access.token_epoch < access.epoch ||", "false ||", "domain", "a_displaced_epoch_gets_conflicts_and_is_told_to_stop"),
    ("domain/src/lease.rs", "< TELEMETRY_GRACE_MS", "< 2 * TELEMETRY_GRACE_MS", "domain", "the_epoch_that_finalized_may_repeat_and_trail_for_a_minute"),
    ("domain/src/lease.rs", "lost_attempt >= MAX_ATTEMPTS", "lost_attempt > MAX_ATTEMPTS", "domain", "the_third_lost_attempt_is_the_last"),
    ("domain/src/lease.rs", "until_ms.max(now_ms.saturating_add(length_ms))", "now_ms.saturating_add(length_ms)", "domain", "no_renewal_and_no_boot_shortens_a_lease"),
    ("domain/src/lease.rs", "sent_ms.saturating_add(length_ms - margin)", "sent_ms.saturating_add(length_ms)", "domain", "a_worker_always_stops_before_its_lease_ends"),
    ("domain/src/lease.rs", "|| !other_live_runner_in_pool", "", "domain", "a_run_leaves_a_runner_it_died_on_twice_if_another_lives"),
    # budgets
    ("domain/src/budget.rs", "cap.filter(|cap| spent > *cap)", "cap.filter(|cap| spent >= *cap)", "domain", "a_cap_may_be_reached_but_not_passed"),
    # cursors and readers
    ("domain/src/cursor.rs", "(highest / CURSOR_STRIDE + 1) * CURSOR_STRIDE + 1", "highest + 1", "domain", "the_terminal_frame_opens_the_block_after_the_highest"),
    ("domain/src/cursor.rs", "|| now_ms >= ready_ms", "|| now_ms >= stored_ms", "domain", "a_gap_stops_readers_for_three_seconds_and_no_longer"),
    ("domain/src/cursor.rs", "(delivery == Delivery::InOrder || block_full)", "true", "domain", "a_new_block_is_a_gap_only_when_batches_may_overtake"),
    # tokens
    ("domain/src/token.rs", "let same_code = bool::from(", "let same_code = true || bool::from(", "domain", "no_changed_byte_passes"),
    # redaction
    ("domain/src/redact/forms.rs", "pub const MIN_RAW_BYTES: usize = 4;", "pub const MIN_RAW_BYTES: usize = 6;", "domain", "values_below_the_minimum_are_left_alone"),
    ("domain/src/redact/forms.rs", "if form != text && form.len() >= MIN_DERIVED_BYTES {", "if false {", "domain", "a_secret_is_replaced_in_every_form"),
    # program JSON
    ("contract/src/json.rs", "if depth(raw.get()) > MAX_DEPTH {", "if depth(raw.get()) > 10 * MAX_DEPTH {", "contract", "nesting_is_judged_exactly"),
    # artifacts
    ("package/src/artifact/entries.rs", '".." => return Err(refuse(raw, "its path has a `..` segment")),', '".." => {}', "package", "paths_that_leave_the_root_are_refused"),
    # schemas and host calls
    ("package/src/types/schema.rs", "if !may_be_missing && !matches!", "if !matches!", "package", "any_type_has_its_schema_which_takes_its_values_and_no_others"),
    ("package/src/types/pieces.rs", 'object.insert("uniqueItems".into(), json!(true));', 'object.insert("uniqueItems".into(), json!(false));', "package", "values_of_any_type_are_restored_by_the_derived_schema_and_written_back_the_same"),
    ("contract/src/host/context.rs", "version >= FIRST_WITH_TRIGGER_REQUEST", "version > FIRST_WITH_TRIGGER_REQUEST", "contract", "the_request_goes_to_sdks_that_know_it_and_to_no_others"),
    ("runtime/src/host/connection.rs", "if was_waiting.is_some() {", "if false {", "runtime", "a_call_that_is_dropped_tells_the_program_and_one_that_was_answered_does_not"),
    ("runtime/src/host/calls/workflows.rs", "*next += 1;", "", "runtime", "called_workflows_are_told_apart_by_their_order_and_give_their_results"),
    # slots
    ("runner/src/capacity.rs", "counts.active < self.shared.slots &&", "counts.active <= self.shared.slots &&", "runner", "a_chain_of_waiting_runs_fits_one_slot_up_to_the_bound"),
    ("runner/src/capacity.rs", "counts.active -= usize::from(!lent);", "counts.active -= usize::from(false);", "runner", "a_chain_of_waiting_runs_fits_one_slot_up_to_the_bound"),
    # runners
    ("runner/src/runner.rs", "if answer.action == Some(PollAction::Drain) {", "if false {", "runner", "an_offer_beside_a_drain_is_not_claimed"),
    ("runner/src/runner.rs", "if left == 0 || !error.is_passing()", "if true || !error.is_passing()", "runner", "a_claim_whose_answer_is_lost_is_made_again_and_its_run_executed_once"),
    ("runner/src/heartbeat.rs", "if BootClock.now_ms() >= self.deadline_ms {", "if false {", "runner", "b17_86_a_run_is_let_go_before_its_lease_can_have_ended"),
    ("runner/src/heartbeat.rs", "RunnerError::Refused { status: 401, .. } => return Some(LeaseEnd::Revoked),", "", "runner", "a_revoked_runner_ends_its_run_at_once_and_itself"),
    ("runner/src/heartbeat.rs", "self.beats.len() < MOST_BEATS => self.beat(),", "self.beats.is_empty() => self.beat(),", "runner", "a_beat_that_is_never_answered_does_not_hold_up_the_next"),
    ("runner/src/heartbeat.rs", "self.cancelled_until.get_or_insert_with(|| Instant::now() + grace);", "let _ = grace;", "runner", "b2_17_a_cancelled_run_whose_process_does_not_end_is_ended_and_given_back"),
    ("runner/src/offers.rs", "if wanted.pool.as_str() != pool {", "if false {", "runner", "an_offer_that_is_not_for_this_machine_is_not_claimed"),
    ("runner/src/offers.rs", "if !is_plain(claim.run_id.as_str()) {", "if false {", "runner", "a_claim_is_for_the_run_that_was_offered_and_its_id_is_harmless"),
    ("runner/src/pace.rs", "doubled.min(self.longest)", "Duration::ZERO", "runner", "polls_that_bring_nothing_are_kept_apart"),
    ("runner/src/work_directory.rs", "let Ok(Some(_lock)) = lock(&other) else { continue };", "", "runner", "only_what_no_process_owns_is_swept_of_other_runners"),
    ("runner/src/claim_env.rs", "&& !reserved(name)", "", "runner", "reserved_and_impossible_environment_entries_do_not_reach_the_run"),
    ('runner/src/assignment.rs', 'let both = format!("{runner}:{lease}");', 'let both = runner.to_owned();', "runner", 'every_attempt_has_a_name_of_its_own'),
    ("runner/src/assignment.rs", "if !error.is_passing() || Instant::now() + wait > give_up {", "if true {", "runner", "a_release_whose_answer_is_lost_is_repeated"),
    ("runner/src/identity.rs", "same_origin(&identity, url)?;", "", "runner", "a_token_is_never_used_for_another_origin"),
    # store
    ("store/src/sqlite/ops/claims.rs", "let epoch = signed(run.epoch + 1)?;", "let epoch = signed(run.epoch)?;", "store", ""),
    ("store/src/sqlite/ops/ends.rs", "let epoch = if end.by.is_some() { run.epoch } else { run.epoch + 1 };", "let epoch = run.epoch;", "store", ""),
    # server
    ("server/src/signed_url.rs", "let genuine = bool::from(", "let genuine = true || bool::from(", "server", "a_signed_address_carries_exactly_its_grant"),
    ("server/src/stream.rs", '"x-accel-buffering", HeaderValue::from_static("no")', '"x-accel-buffering", HeaderValue::from_static("yes")', "server", "b17_81_a_stream_forbids_buffering_replays_goes_live_and_closes_at_the_end"),
    ("server/src/feed.rs", "if seen >= version &&", "if true &&", "server", "a_thousand_followers_cost_one_look_a_change"),
    ("server/src/providers.rs", "bool::from(code(key, run, provider).as_bytes().ct_eq(told.as_bytes())).then_some(provider)", "Some(provider)", "server", "a_key_name_opens_one_providers_key_for_one_run"),
    ("server/src/control/metering.rs", "(Some(brokered), _) => !brokered,", "(Some(_), _) => false,", "server", "relayed_turns_are_metered_by_the_relay_alone_and_direct_ones_by_their_reports"),
    ("store/src/sqlite/ops/usage.rs", "if known.counted {", "if false {", "store", "of_repeated_token_reports_the_largest_numbers_hold"),
    ("domain/src/brackets.rs", "self.turns.into_iter().rev()", "self.turns.into_iter()", "domain", "a_lost_process_leaves_its_open_turns_to_be_closed_from_the_inside_out"),
    # processes
    ("sandbox/src/tree.rs", "let joined = owns_number && (stat.session == self.root || stat.group == self.root);", "let joined = false;", "sandbox", ""),
    # command line
    ("cli/src/event_stream.rs", "if at <= *cursor {", "if false {", "cli", "a_snapshot_after_a_stream_shows_nothing_twice"),
    ("cli/src/server_address.rs", "if same_origin(url, &local) =>", "=>", "cli", "a_local_token_is_not_sent_to_another_server"),
]


def seen(number, mutation):
    path, text, replacement, package, test = mutation
    file = Path("crates") / path
    original = file.read_text()
    if text not in original:
        print(f"{number:>3} gone    {path}: {text}")
        return False
    try:
        file.write_text(original.replace(text, replacement, 1))
        command = ["cargo", "nextest", "run", "--no-fail-fast", "-p", f"trestle-{package}"] + ([test] if test else [])
        result = subprocess.run(command, capture_output=True, text=True)
    finally:
        file.write_text(original)
    output = result.stdout + result.stderr
    red = result.returncode != 0 and " FAIL " in output
    verdict = "seen" if red else "BROKEN" if "error: could not compile" in output or "no tests to run" in output else "MISSED"
    print(f"{number:>3} {verdict:<7} {path}: {text.strip()} → {replacement.strip() or 'nothing'}", flush=True)
    return red


def main():
    wanted = [int(number) for number in sys.argv[1:]] or range(1, len(MUTATIONS) + 1)
    dirty = subprocess.run(["git", "diff", "--quiet", "--"] + [f"crates/{MUTATIONS[n - 1][0]}" for n in wanted], check=False)
    if dirty.returncode != 0:
        sys.exit("error: commit or undo the changes to the files first")
    red = sum(seen(number, MUTATIONS[number - 1]) for number in wanted)
    print(f"{red} of {len(list(wanted))} mutations seen")
    sys.exit(0 if red == len(list(wanted)) else 1)


main()
