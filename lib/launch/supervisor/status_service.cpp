#include "launch/supervisor/status_service.hpp"

#include <algorithm>

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A line of launcher.jsonl holds some 50 bytes for each rank: at this interval for each of them, the file of a day is 5
// MB at most.
constexpr auto kMinInterval = 10000ms, kIntervalPerRank = 1000ms, kMaxInterval = 300000ms;

}  // namespace

StatusService::StatusService(Attempt& attempt, const RankMonitor& ranks)
    : attempt_(attempt), ranks_(ranks), events_(attempt.options.live->files()), next_sample_(Deadline::never()) {
  // A single rank has no skew, and its own metrics.
  if (LauncherEvents::records(attempt_.plan) && attempt_.plan.world_size() > 1) {
    next_sample_ = Deadline::after(sample_interval());
  }
}

std::chrono::milliseconds StatusService::sample_interval() const {
  return std::clamp<std::chrono::milliseconds>(attempt_.plan.world_size() * kIntervalPerRank, kMinInterval,
                                               kMaxInterval);
}

void StatusService::request(uint64_t client) {
  if (question_ && question_->is_sample && question_->clients.empty()) {
    waiting_.push_back(client);
  } else {
    if (!question_) ask(/*with_gpus=*/true);
    question_->clients.push_back(client);
  }
}

void StatusService::ask(bool with_gpus) {
  question_.emplace();
  question_->number = ++num_questions_;
  question_->deadline = Deadline::after(kRankStatusTimeout);
  for (size_t i = 0; i < attempt_.nodes.size(); ++i) {
    NodeSession& node = attempt_.nodes[i];
    const auto& planned = node.plan().ranks;
    const bool has_ranks = std::any_of(planned.begin(), planned.end(), [&](const auto& each) {
      const RankRecord& record = attempt_.record_of(node, each.rank);
      return record.pid > 0 && !record.cause;
    });
    if (node.over() || !has_ranks) continue;
    node.send(StatusWanted{question_->number, with_gpus});
    question_->awaited.insert(i);
  }
}

void StatusService::take(const NodeSession& node, const NodeStatus& status) {
  if (!question_ || status.request != question_->number) return;
  const auto index = static_cast<size_t>(node.plan().node_rank);
  if (question_->awaited.erase(index) == 0) return;
  std::vector<int> ranks;
  for (const auto& planned : node.plan().ranks) ranks.push_back(planned.rank);
  question_->table.take(node.host(), ranks, status);
}

void StatusService::answer() {
  std::vector<RankActivity> activity;
  if (attempt_.plan.kind == JobKind::kExec) {
    for (const auto& record : attempt_.records) activity.push_back(ranks_.activity_of(record.rank));
  }
  if (!question_->clients.empty()) {
    const RankStatusAnswer document{question_->table.document(attempt_.records, activity, attempt_.plan.job_id,
                                                              name_of(attempt_.lifecycle.state()))};
    for (const uint64_t client : question_->clients) attempt_.options.live->answer(client, document);
  }
  if (question_->is_sample) events_.sampled(attempt_.plan, question_->table.samples(attempt_.records.size()));
  question_.reset();
}

void StatusService::check() {
  if (question_ && (question_->awaited.empty() || question_->deadline.passed())) answer();
  if (question_) return;
  if (!waiting_.empty()) {
    ask(/*with_gpus=*/true);
    question_->clients = std::exchange(waiting_, {});
  } else if (next_sample_.passed()) {
    next_sample_ = Deadline::after(sample_interval());
    if (attempt_.lifecycle.state() != JobState::kRunning) return;
    ask(/*with_gpus=*/false);
    question_->is_sample = true;
  }
}

Deadline StatusService::next_due() const {
  if (!question_) return waiting_.empty() ? next_sample_ : Deadline::after(0ms);
  return question_->awaited.empty() ? Deadline::after(0ms) : question_->deadline;
}

}  // namespace dslaunch::launch
