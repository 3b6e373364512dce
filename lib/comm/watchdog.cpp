#include "comm/watchdog.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "base/byte_fields.hpp"
#include "base/deadline.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/parse_int.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr milliseconds kStoreTime{10'000};
constexpr int kTicksBetweenChecks = 3;  // so that a rank that reports once per tick has reported in between

const std::string kVerdictKey = "hang/verdict";
const std::string kNoRankMissing =
    "although all ranks have arrived: the data is large, or the network between them is broken";

milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - then);
}

std::string report_key(int rank) {
  return fmt::format("hang/report/{}", rank);
}

bool has_expired(const RankWait& wait, const HangTimes& times) {
  return wait.own_timeout == 0ms && wait.age >= times.limit;
}

// The number of reports due for a wait of this age. The end of the job is the last of them, so that it happens even if
// the rank that has reported so far falls silent.
size_t num_reports_due(const RankWait& wait, const HangTimes& times, milliseconds median_step) {
  const auto ages = times.report_ages(median_step);
  const auto num_reached = std::count_if(ages.begin(), ages.end(), [&](milliseconds age) { return wait.age >= age; });
  return static_cast<size_t>(num_reached) + (has_expired(wait, times) ? 1 : 0);
}

const RankWait* longest_wait(const RankReport& report) {
  const auto& waits = report.waits;
  const auto found =
      std::max_element(waits.begin(), waits.end(), [](const auto& a, const auto& b) { return a.age < b.age; });
  return found == waits.end() ? nullptr : &*found;
}

std::string advice_for(const std::vector<int>& ranks, const RankReports& reports) {
  for (int rank : ranks) {
    for (const auto& wait : reports[static_cast<size_t>(rank)]->waits) {
      if (!wait.advice.empty()) return wait.advice;
    }
  }
  return {};
}

std::string message_sequence(const Watchdog::Group& group, int from, int to) {
  const auto rank_of = [&](int member) { return group.members.at(static_cast<size_t>(member)); };
  return fmt::format("{} {}>{}", group.name, rank_of(from), rank_of(to));
}

// `rank`: this rank of the world. An exchange is a sequence of its own rank: only its messages concern others.
RankWait wait_of(const PendingCall& call, const Watchdog::Group& group, int rank) {
  RankWait wait{group.name,    call.number,       call.what,        {},
                group.members, since(call.since), call.blocks_host, call.is_on_device};
  if (call.messages.empty()) return wait;
  wait.group = fmt::format("{} exchanges of rank {}", group.name, rank);
  for (const auto& [from, to, number] : call.messages) {
    const int peer =
        group.members.at(static_cast<size_t>(group.members.at(static_cast<size_t>(from)) == rank ? to : from));
    wait.messages.push_back({message_sequence(group, from, to), number, peer});
  }
  return wait;
}

// A neighbour waits for the same cause in an exchange of its own, and reports it.
bool is_reported_by_peer(const RankWait& wait, int rank, const RankReports& reports) {
  if (wait.messages.empty()) return false;
  const auto missing = missing_from(wait, rank, reports), roots = root_missing(wait, rank, reports);
  return !roots.empty() &&
         std::find_first_of(missing.begin(), missing.end(), roots.begin(), roots.end()) == missing.end();
}

ports::ProcessIdentity own_identity() {
  const auto stat = ports::read_process_stat(::getpid());
  return {::getpid(), stat ? stat->start_ticks : 0};
}

// Only for exactly this process on exactly this host, as far as that can be checked: hosts may share a name.
StateOf states_on(const std::string& host) {
  return [host](const RankReport& report) -> std::optional<char> {
    if (report.host != host) return std::nullopt;
    const auto stat = ports::read_process_stat(static_cast<pid_t>(report.pid));
    if (!stat || stat->start_ticks != report.start_ticks) return std::nullopt;
    return stat->state;
  };
}

}  // namespace

struct Watchdog::LongWait {
  RankWait wait;
  size_t last_claimed = 0;  // the last report that this rank took over
  size_t num_reported = 0;  // reports that are done, by any rank
  RankReports before;       // from the previous check
  int ticks_to_check = kTicksBetweenChecks;
  bool has_reported = false;  // whether this rank has reported it
};

Watchdog::Watchdog(Options options, rendezvous::Store& store)
    : options_(std::move(options)), store_(store), activity_("its start"), activity_since_(Clock::now()) {
  if (options_.world_size > 1) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  end();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::end() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
}

void Watchdog::add(Group group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
}

void Watchdog::set_activity(std::string activity) {
  std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
  activity_since_ = Clock::now();
}

void Watchdog::add_step(milliseconds time) {
  std::lock_guard lock(mutex_);
  steps_.add(time);
}

milliseconds Watchdog::report_threshold() const {
  return options_.times.report_threshold(median_step());
}

milliseconds Watchdog::median_step() const {
  std::lock_guard lock(mutex_);
  return steps_.get();
}

Watchdog::BarrierWait::BarrierWait(Watchdog& watch, const std::string& name, std::string what, std::string advice,
                                   milliseconds own_timeout)
    : watch_(watch) {
  RankWait wait = watch.wait_of_all("meeting/" + name, 0, std::move(what));
  wait.advice = std::move(advice);
  wait.own_timeout = own_timeout;
  std::lock_guard lock(watch_.mutex_);
  wait.number = ++watch_.last_own_[wait.group];
  watch_.barrier_ = OwnWait{std::move(wait), Clock::now()};
}

Watchdog::BarrierWait::~BarrierWait() {
  std::lock_guard lock(watch_.mutex_);
  watch_.barrier_.reset();
}

void Watchdog::mark_done(const std::string& sequence, uint64_t number) {
  std::lock_guard lock(mutex_);
  last_own_["part/" + sequence] = number;
}

Watchdog::PartWait::PartWait(Watchdog& watch, const std::string& sequence, uint64_t number, std::string what)
    : watch_(watch) {
  RankWait wait = watch.wait_of_all("part/" + sequence, number, std::move(what));
  // Threads in the background do the parts: no deadlock, whatever the ranks themselves wait for.
  wait.blocks_host = false;
  std::lock_guard lock(watch_.mutex_);
  watch_.part_ = OwnWait{std::move(wait), Clock::now()};
}

Watchdog::PartWait::~PartWait() {
  std::lock_guard lock(watch_.mutex_);
  watch_.part_.reset();
}

RankWait Watchdog::wait_of_all(const std::string& sequence, uint64_t number, std::string what) const {
  RankWait wait{.group = sequence, .number = number, .what = std::move(what)};
  for (int rank = 0; rank < options_.world_size; ++rank) wait.members.push_back(rank);
  return wait;
}

std::optional<Error> Watchdog::verdict() const {
  std::lock_guard lock(mutex_);
  return verdict_;
}

void Watchdog::run() {
  ::pthread_setname_np(::pthread_self(), "hang watch");
  for (;;) {
    try {
      check();
    } catch (const TimeoutError& error) {
      // Returning here would silence this rank for good, and other ranks would take it for hung.
      log::debug("watchdog: {}", error.what());
    } catch (const std::exception& error) {
      // Without the store no rank can be queried; and the loss of the store, or of a rank, ends the job anyway.
      log::debug("watchdog stopped: {}", error.what());
      return;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, options_.times.check_interval, [&] { return is_ending_; });
    if (is_ending_ || verdict_) return;
  }
}

void Watchdog::check() {
  const RankReport own = report();
  publish(own);  // even if nothing waits: a rank that does not report is taken for stalled
  take_over_verdict();
  track_longest_wait(own);
}

// Reports the waits that have lasted for a tick.
RankReport Watchdog::report() const {
  static const ports::ProcessIdentity self = own_identity();
  RankReport out;
  out.host = options_.host;
  out.place = options_.place;
  out.pid = self.pid;
  out.start_ticks = self.start_ticks;
  std::lock_guard lock(mutex_);
  out.last_calls = last_own_;
  for (const Group& group : groups_) {
    const CallState calls = group.communicator->calls();
    out.last_calls[group.name] = calls.last;
    for (const auto& [ends, number] : calls.messages) {
      out.last_calls[message_sequence(group, ends.first, ends.second)] = number;
    }
    if (!calls.oldest || since(calls.oldest->since) < options_.times.check_interval) continue;
    out.waits.push_back(wait_of(*calls.oldest, group, options_.rank));
  }
  out.activity = activity_;
  out.activity_age = since(activity_since_);
  for (const auto* own : {&barrier_, &part_}) {
    if (!*own) continue;
    out.waits.push_back((*own)->wait);
    out.waits.back().age = since((*own)->since);
  }
  return out;
}

void Watchdog::publish(const RankReport& own) {
  RankReport published = own;
  published.heartbeat = ++heartbeat_;
  const std::string bytes = encode(published);
  if (options_.show) options_.show(bytes);
  store_.set(report_key(options_.rank), bytes, Deadline::after(kStoreTime));
}

RankReports Watchdog::read_all(const RankReport& own) {
  RankReports reports(static_cast<size_t>(options_.world_size));
  for (int rank = 0; rank < options_.world_size; ++rank) {
    auto& report = reports[static_cast<size_t>(rank)];
    if (rank == options_.rank) {
      report = own;
      report->heartbeat = ++heartbeat_;
    } else if (const auto bytes = store_.try_get(report_key(rank), Deadline::after(kStoreTime))) {
      report = decode(*bytes);
    }
  }
  return reports;
}

// Opens a case for this rank's longest wait once it is long enough, unless another rank reports it; closes the case
// when the wait is over.
void Watchdog::track_longest_wait(const RankReport& own) {
  const RankWait* wait = longest_wait(own);
  const bool is_same =
      wait && long_wait_ && long_wait_->wait.group == wait->group && long_wait_->wait.number == wait->number;
  if (long_wait_ && !is_same) {
    if (long_wait_->has_reported)
      warn(fmt::format("{}: completed after {}", long_wait_->wait.what, age_text(long_wait_->wait.age)));
    long_wait_.reset();
  }
  if (!wait) return;
  if (long_wait_) {
    long_wait_->wait = *wait;
    if (--long_wait_->ticks_to_check <= 0) check_long_wait(own);
    return;
  }
  const size_t due = num_reports_due(*wait, options_.times, median_step());
  if (due > 0 && claim_report(*wait, due)) {
    long_wait_ = std::make_unique<LongWait>(LongWait{*wait, due, due - 1, read_all(own)});
  }
}

// True if this rank is to make the report number `times`. One key per group holds the report that was taken over last.
bool Watchdog::claim_report(const RankWait& wait, size_t times) {
  const auto key = fmt::format("hang/told/{}", wait.group);
  const auto known = store_.try_get(key, Deadline::after(kStoreTime)).value_or("");
  const auto rank = static_cast<uint64_t>(options_.rank);
  const auto mine = ByteWriter().u64(wait.number).u64(times).u64(rank).take();
  if (known == mine) return true;  // taken over before, but the store's answer was lost
  ByteReader last(known);
  if (!last.at_end()) {
    const uint64_t number = last.u64(), last_claimed = last.u64();
    if (std::pair(number, last_claimed) >= std::pair<uint64_t, uint64_t>(wait.number, times)) return false;
  }
  return store_.compare_and_set(key, known, mine, Deadline::after(kStoreTime)) == mine;
}

void Watchdog::check_long_wait(const RankReport& own) {
  LongWait& it = *long_wait_;
  it.ticks_to_check = kTicksBetweenChecks;
  const RankReports now = read_all(own);
  const RankReports before = std::exchange(it.before, now);
  const auto deadlocked = find_deadlocked(before, now, report_threshold());
  if (!deadlocked.empty()) {
    const auto text = fmt::format("deadlock: ranks wait for each other: {}", describe_deadlock(deadlocked, now));
    const auto advice = advice_for(deadlocked, now);
    if (advice.empty()) return end_job(ExitCode::kTimeout, text);
    return end_job(ExitCode::kBadInput, fmt::format("{}. {}", text, advice));
  }
  const auto missing = describe_missing_ranks(it.wait, before, now);
  // Of a pipeline's exchange, the stage and the micro batches.
  const auto part = it.wait.messages.empty() ? std::string() : fmt::format(" ({})", own.activity);
  const auto text = fmt::format("{}{} has been waiting {} {}", it.wait.what, part, age_text(it.wait.age),
                                missing.empty() ? kNoRankMissing : "for " + missing);
  if (has_expired(it.wait, options_.times)) {
    return end_job(ExitCode::kTimeout, fmt::format("{}. The limit of a wait for other ranks is {} (--hang_timeout)",
                                                   text, age_text(options_.times.limit)));
  }
  // A device may still be computing earlier work.
  if (missing.empty() && it.wait.is_on_device) return;
  if (is_reported_by_peer(it.wait, options_.rank, now)) return;
  const size_t due = num_reports_due(it.wait, options_.times, median_step());
  if (due <= it.num_reported) return;
  it.num_reported = due;
  if (due > it.last_claimed && !claim_report(it.wait, due)) return;
  it.last_claimed = due;
  it.has_reported = true;
  const auto limit = it.wait.own_timeout == 0ms ? options_.times.limit : it.wait.own_timeout;
  warn(fmt::format("{}. The job ends when the wait reaches {}", text, age_text(limit)));
}

// Empty: all have arrived, and none is known to be frozen.
std::string Watchdog::describe_missing_ranks(const RankWait& wait, const RankReports& before,
                                             const RankReports& now) const {
  const auto state_of = states_on(options_.host);
  auto missing = root_missing(wait, options_.rank, now);
  if (missing.empty()) missing = missing_from(wait, options_.rank, now);
  if (!missing.empty()) return describe_missing(missing, before, now, state_of);
  const auto frozen = frozen_members(wait, options_.rank, before, now, state_of);
  return frozen.empty() ? "" : describe_frozen(frozen, now, state_of);
}

void Watchdog::warn(const std::string& text) const {
  {
    std::lock_guard lock(mutex_);
    if (is_ending_) return;
  }
  options_.warn ? options_.warn(text) : log::warning("{}", text);
}

// The other ranks may wait where no abort of a communicator reaches them, as for the files of a checkpoint: the first
// verdict is for all.
void Watchdog::end_job(ExitCode code, const std::string& message) {
  try {
    store_.set(kVerdictKey, fmt::format("{} {}", to_int(code), message), Deadline::after(kStoreTime));
  } catch (const Error& error) {
    log::debug("watchdog: {}", error.what());
  }
  abort_groups(code, message);
}

void Watchdog::take_over_verdict() {
  const auto text = store_.try_get(kVerdictKey, Deadline::after(kStoreTime));
  if (!text) return;
  const size_t space = text->find(' ');
  const auto code = parse_int<int>(text->substr(0, space));
  if (space == std::string::npos || !code) return;
  abort_groups(static_cast<ExitCode>(*code), text->substr(space + 1));
}

void Watchdog::abort_groups(ExitCode code, const std::string& message) {
  std::lock_guard lock(mutex_);
  if (is_ending_ || verdict_) return;
  verdict_.emplace(code, message);
  for (const Group& group : groups_) group.communicator->abort(message);
}

}  // namespace dslaunch::comm
