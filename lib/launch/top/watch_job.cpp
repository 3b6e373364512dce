#include "launch/top/watch_job.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/job_client.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/top/screen.hpp"
#include "launch/top/top_table.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kRefresh = 1000ms;
// Longer than the supervisor's own limit.
constexpr std::chrono::milliseconds kAnswerTime = kRankStatusTimeout + 5s;

std::string name_of_job(const JobRecord& record) {
  return record.name.empty() ? record.job_id : fmt::format("{} ({})", record.name, record.job_id);
}

// Where to look once the job is over.
std::string hint(const JobRecord& record) {
  const std::string& job = record.label();
  return record.run_dir.empty() ? fmt::format("'dslaunch logs {}' shows its output", job)
                                : fmt::format("'dslaunch report {}' shows the run", job);
}

std::string end_text(const KnownJob& job) {
  const auto& end = job.record.end;
  std::string text = fmt::format("job {} has ended", job.record.job_id);
  if (end)
    text += fmt::format(", exit code {}{}{}", end->exit_code, end->first_cause.empty() ? "" : ": ", end->first_cause);
  return fmt::format("{}; {}", text, hint(job.record));
}

void check_condition(const KnownJob& job) {
  if (job.condition == Condition::kEnded) throw Error(ExitCode::kUnavailable, end_text(job));
  check_supervisor_here(job);
}

[[noreturn]] void no_answer(const KnownJob& job, const std::optional<JobAnswer>& answer) {
  std::string why =
      fmt::format("no answer at its socket ({})", job.record.socket.empty() ? "it has none" : job.record.socket);
  if (answer && std::holds_alternative<Refused>(*answer)) why = std::get<Refused>(*answer).why;
  if (answer && std::holds_alternative<EndAnswer>(*answer)) why = end_text(reload_job(job));
  throw Error(ExitCode::kUnavailable, fmt::format("cannot watch job {}: {}", job.record.job_id, why));
}

int show_once(const KnownJob& job, const TopOptions& options) {
  JobClient client(job.record.socket);
  const auto answer =
      client.send(RankStatusRequest{}) ? client.await(Deadline::after(kAnswerTime)) : std::optional<JobAnswer>();
  const auto* status = answer ? std::get_if<RankStatusAnswer>(&*answer) : nullptr;
  if (status == nullptr) no_answer(job, answer);
  if (options.json) {
    std::fputs((dump_json(nlohmann::ordered_json::parse(status->document), 2) + "\n").c_str(), stdout);
  } else {
    print_text(plain_text(top_table(status->document, name_of_job(job.record))));
  }
  return to_int(ExitCode::kSuccess);
}

// The table on the screen, from the first answer to a key or a signal that ends it, or to the job's end.
class Watch {
 public:
  Watch(const KnownJob& job, const TopOptions& options) : job_(job), options_(options), client_(job.record.socket) {}

  // Returns a line for the user once the screen is gone; empty: the user knows.
  std::string run() {
    if (!client_.connected()) no_answer(job_, std::nullopt);
    request();
    while (!is_over_) poll_once();
    return has_ended_ ? end_text(reload_job(job_)) : std::string();
  }

 private:
  void take(const JobAnswer& answer) {
    if (std::holds_alternative<EndAnswer>(answer)) return end();
    const auto* status = std::get_if<RankStatusAnswer>(&answer);
    if (status == nullptr) no_answer(job_, answer);
    table_ = top_table(status->document, name_of_job(job_.record));
    is_waiting_ = false;
  }

  void draw() {
    const ScreenSize size = Screen::size();
    first_rank_ = std::min(first_rank_, last_first_rank(table_, size.rows));
    screen_.draw(fit_to_screen(table_, {size.columns, size.rows, first_rank_, options_.colors}));
  }

  void poll_once() {
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    polls.add(screen_.keys_fd(), POLLIN);
    const size_t answers = polls.add(client_.fd(), POLLIN);
    polls.wait(is_waiting_ ? answer_due_ : next_request_);
    while (const auto signal = signals_.take()) on_signal(*signal);
    for (const Key key : screen_.take_keys()) on_key(key);
    if (polls.ready(answers)) receive();
    if (is_over_) return;
    if (is_waiting_ && answer_due_.passed()) no_answer(job_, std::nullopt);
    if (!is_waiting_ && next_request_.passed()) request();
  }

  void request() {
    next_request_ = Deadline::after(kRefresh);
    answer_due_ = Deadline::after(kAnswerTime);
    is_waiting_ = client_.send(RankStatusRequest{});
    if (!is_waiting_) end();
  }

  void receive() {
    const bool there = client_.receive();
    while (const auto answer = client_.next()) take(*answer);
    if (!there) end();
    if (is_over_) return;
    draw();
  }

  void end() { is_over_ = has_ended_ = true; }

  void on_signal(int signal) {
    if (signal == SIGWINCH) return draw();
    if (signal != SIGTSTP) {
      is_over_ = true;
      return;
    }
    screen_.leave();
    ::kill(::getpid(), SIGSTOP);  // returns when the shell continues the process
    screen_.enter();
    draw();
  }

  void on_key(Key key) {
    const size_t page = std::max<size_t>(Screen::size().rows, 8) - 6;
    if (key == Key::kQuit) is_over_ = true;
    if (key == Key::kUp) first_rank_ -= std::min<size_t>(first_rank_, 1);
    if (key == Key::kPageUp) first_rank_ -= std::min(first_rank_, page);
    if (key == Key::kDown) ++first_rank_;
    if (key == Key::kPageDown) first_rank_ += page;
    if (!is_over_) draw();
  }

  const KnownJob& job_;
  const TopOptions& options_;
  SignalInbox signals_{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};
  JobClient client_;
  TopTable table_;
  size_t first_rank_ = 0;
  bool is_waiting_ = false;  // for an answer
  Deadline next_request_ = Deadline::never(), answer_due_ = Deadline::never();
  bool is_over_ = false, has_ended_ = false;
  Screen screen_;  // restored first
};

}  // namespace

int watch_job(const KnownJob& job, const TopOptions& options) {
  check_condition(job);
  const char* terminal = std::getenv("TERM");
  const bool has_screen = ::isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
  if (options.once || options.json || !has_screen) return show_once(job, options);
  const std::string end = Watch(job, options).run();
  if (!end.empty()) print_text(end + "\n");
  return to_int(ExitCode::kSuccess);
}

}  // namespace dslaunch::launch
