#include "runtime/checkpoint/restore_agreement.hpp"

#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

std::string to_text(const RestoreReport& report) {
  return dump_json(Json{static_cast<int>(report.outcome), report.message});
}

RestoreReport report_from(const std::string& text) {
  const Json json = Json::parse(text);
  return {static_cast<RestoreReport::Outcome>(json.at(0).get<int>()), json.at(1).get<std::string>()};
}

}  // namespace

RestoreReport RestoreAgreement::agree(const std::string& phase, const RestoreReport& own) {
  send(fmt::format("{}/{}", phase, placement_.rank), to_text(own));
  const auto waiting = begin_wait(phase);
  if (placement_.rank == 0) send(phase + "/all", to_text(worst_of_all(phase)));
  RestoreReport worst = report_from(receive_verdict(phase + "/all"));
  if (worst.outcome == RestoreReport::Outcome::kLate) throw TimeoutError(worst.message);
  deadline_ = Deadline::after(timeout_);  // all ranks are here now
  return worst;
}

RestoreReport RestoreAgreement::worst_of_all(const std::string& phase) {
  RestoreReport worst;
  for (int rank = 0; rank < placement_.world_size; ++rank) {
    RestoreReport report = report_of(rank, phase);
    if (report.outcome > worst.outcome) worst = std::move(report);
  }
  return worst;
}

RestoreReport RestoreAgreement::report_of(int rank, const std::string& phase) {
  try {
    return report_from(receive(fmt::format("{}/{}", phase, rank)));
  } catch (const TimeoutError& error) {
    return {RestoreReport::Outcome::kLate,
            fmt::format("resuming: timed out waiting for rank {} ({})", rank, error.what())};
  }
}

std::optional<comm::Watchdog::BarrierWait> RestoreAgreement::begin_wait(const std::string& phase) {
  if (!watch_) return std::nullopt;
  return std::optional<comm::Watchdog::BarrierWait>(
      std::in_place, *watch_, "resume", fmt::format("the resume (phase '{}')", phase), "", deadline_.left());
}

void RestoreAgreement::send(const std::string& key, const std::string& text) {
  store_.set(prefix_ + key, text, with_minimum_time(deadline_));
}

std::string RestoreAgreement::receive(const std::string& key) {
  return store_.get(prefix_ + key, deadline_);
}

std::string RestoreAgreement::receive_verdict(const std::string& key) {
  try {
    return store_.get(prefix_ + key, verdict_deadline(deadline_));
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("resuming: timed out waiting for the result of rank 0 ({})", error.what()));
  }
}

}  // namespace dslaunch::runtime
