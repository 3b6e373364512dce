#include "runtime/checkpoint/checkpoint_restore.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/resume_plan.hpp"

namespace dslaunch::runtime {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// How a phase went on one rank, or on all of them.
enum class Outcome { kGood, kNeedsOthers, kDamaged, kRefused, kLate };  // the worst of all ranks counts
struct Report {
  Outcome outcome = Outcome::kGood;
  std::string message;
};

std::string to_text(const Report& report) {
  return Json{static_cast<int>(report.outcome), report.message}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Report report_from(const std::string& text) {
  const Json json = Json::parse(text);
  return {static_cast<Outcome>(json.at(0).get<int>()), json.at(1).get<std::string>()};
}

// The manifest's bytes; empty when there is none.
std::string manifest_in(const std::string& folder) {
  std::error_code ignored;
  const std::string path = folder + "/" + kManifestName;
  if (!fs::is_regular_file(path, ignored)) return {};
  const auto file = MappedFile::open(path, "checkpoint file");
  return {reinterpret_cast<const char*>(file->data()), file->size()};
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(path) / kManifestName, ignored);
}

}  // namespace

void RestoreSource::keep(const UserError& error) {
  if (error_.empty()) error_ = error.what();
  is_damage_ |= dynamic_cast<const DamagedCheckpoint*>(&error) != nullptr;
}

void RestoreSource::read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out) {
  try {
    if (!fetched_ && !reader_.is_whole()) {
      const auto missing = reader_.missing(parameter, state, begin, begin + out.numel());
      needs_.pieces.insert(needs_.pieces.end(), missing.begin(), missing.end());
      if (!missing.empty()) {
        out.zero_();
        return;
      }
    }
    reader_.read_into(parameter, state, begin, out);
  } catch (const UserError& error) {
    keep(error);
    out.zero_();
  }
}

std::optional<std::string> RestoreSource::rng_state(int rank, int world_size) {
  const bool lies_elsewhere = world_size == reader_.world_size() && !reader_.has_shard(shard_name(rank));
  if (lies_elsewhere && !fetched_) needs_.rng_of = rank;
  try {
    return reader_.rng_state(rank, world_size);
  } catch (const UserError& error) {
    keep(error);
    return std::nullopt;
  }
}

// One restoring of one rank, start to end.
class Restore {
 public:
  Restore(const RestoreOptions& options, rendezvous::Store& store, comm::Communicator& world,
          const std::function<void(RestoreSource&)>& attempt)
      : options_(options),
        placement_(options.placement),
        store_(store),
        world_(world),
        attempt_(attempt),
        folder_(is_auto() ? options.dir : meant_folder(options.from)),
        deadline_(Deadline::after(options.timeout)) {}

  std::optional<Restored> run() {
    const ResumePlan plan = agree_on_plan();
    if (placement_.rank == 0) {
      for (const auto& line : plan.passed_over) log::warning("passing over checkpoint {}", line);
    }
    if (is_auto() && plan.candidates.empty() && !plan.has_damaged) return std::nullopt;
    if (is_of_one_job() && plan.candidates.empty()) return back_to_its_beginning("see above");
    if (plan.candidates.empty() || (!is_auto() && plan.newest_is_damaged)) refuse(plan);
    std::string last_fault;
    for (size_t i = 0; i < plan.candidates.size(); ++i) {
      const auto& candidate = plan.candidates[i];
      phase_ = fmt::format("{}{}/", keys(), i);
      Restored restored{path_of(candidate), {}};
      const Report report = try_candidate(candidate, restored.metadata);
      if (report.outcome == Outcome::kGood) return restored;
      if (report.outcome == Outcome::kRefused) throw UserError(ExitCode::kBadInput, report.message);
      if (!is_auto()) {
        throw DamagedCheckpoint(report.message + " (--resume auto would go back to the newest one that is sound)");
      }
      last_fault = report.message;
      if (placement_.rank == 0 && i + 1 < plan.candidates.size()) {
        log::warning("{}; GOING BACK to '{}'", report.message, plan.candidates[i + 1].path);
      }
    }
    if (is_of_one_job() && !has_read_) return back_to_its_beginning(last_fault);
    throw DamagedCheckpoint(
        fmt::format("--resume auto: no checkpoint in '{}' is usable; the last one tried: {}", folder_, last_fault));
  }

 private:
  bool is_auto() const { return options_.from == "auto"; }
  bool is_of_one_job() const { return is_auto() && !options_.job.empty(); }

  // The job knows where it began, so damage costs its steps and never the job.
  std::optional<Restored> back_to_its_beginning(const std::string& why) const {
    if (placement_.rank == 0) {
      log::warning("no checkpoint of this job in '{}' is usable ({}); GOING BACK to where the job began", folder_, why);
    }
    return std::nullopt;
  }

  // On this host, which may have nothing there.
  std::string path_of(const ResumeCandidate& candidate) const {
    const bool is_named = !is_auto() && is_checkpoint(folder_);
    return is_named ? folder_ : folder_ + "/" + step_name(candidate.step);
  }

  ResumePlan agree_on_plan() {
    if (placement_.leads_node()) store_.set(offer_key(placement_.node), to_text(look()), with_a_moment(deadline_));
    if (placement_.rank == 0) {
      std::vector<ResumeOffer> offers;
      for (int node = 0; node < placement_.num_nodes; ++node) {
        offers.push_back(offer_from(store_.get(offer_key(node), deadline_)));
      }
      store_.set(keys() + "plan", to_text(plan_resume(offers)), with_a_moment(deadline_));
    }
    return plan_from(hear_verdict(keys() + "plan"));
  }

  // A named folder that holds a checkpoint is that checkpoint; nothing else is looked at then.
  ResumeOffer look() const {
    const bool is_named = !is_auto() && is_checkpoint(folder_);
    auto found = is_named ? std::vector{look_at_checkpoint(folder_)} : survey_checkpoints(folder_);
    if (is_of_one_job()) {  // one whose manifest nobody can read stays, to be named
      std::erase_if(found, [&](const auto& one) { return one.manifest && one.manifest->metadata.job != options_.job; });
    }
    return offer_of(std::move(found), is_named ? std::nullopt : latest_step(folder_), placement_.rank, placement_.host);
  }

  [[noreturn]] void refuse(const ResumePlan& plan) const {
    if (plan.has_damaged) {
      throw DamagedCheckpoint(fmt::format(
          "{} in '{}' is damaged:\n  {}\n{}", is_auto() ? "every checkpoint" : "the checkpoint", folder_,
          fmt::join(plan.passed_over, "\n  "),
          is_auto() ? "Name another one with --resume PATH, or take the folder away to start afresh"
                    : "Name another one with --resume, or let --resume auto take the newest one that is sound"));
    }
    CheckpointReader says_what_is_wrong(folder_);  // on rank 0's host, as the user named it
    throw UserError(ExitCode::kNoInput, fmt::format("no host of this job sees a checkpoint at '{}'", folder_));
  }

  // Opens, reads, fetches what is elsewhere and reads again; the ranks agree after each.
  Report try_candidate(const ResumeCandidate& candidate, CheckpointMetadata& metadata) {
    std::unique_ptr<CheckpointReader> reader;
    Report report = agree("open", guarded([&] { reader = open(candidate); }));
    if (report.outcome != Outcome::kGood) return report;
    metadata = reader->metadata();
    if (is_of_one_job()) {
      report = agree("verify all", guarded([&] { verify_share(candidate, *reader); }));
      if (report.outcome != Outcome::kGood) return report;
    }
    RemoteNeeds needs;
    report = agree("read", read_all(*reader, false, needs));
    if (report.outcome != Outcome::kNeedsOthers) return report;
    report = agree("verify", guarded([&] { verify_travelling(candidate, *reader); }));
    if (report.outcome != Outcome::kGood) return report;
    const auto fault = fetch_remote_pieces(world_, options_.device, candidate.travelling, needs, *reader);
    report = agree("fetch", fault ? Report{Outcome::kDamaged, *fault} : Report{});
    if (report.outcome != Outcome::kGood) return report;
    return agree("read again", read_all(*reader, true, needs));
  }

  std::unique_ptr<CheckpointReader> open(const ResumeCandidate& candidate) {
    const std::string path = path_of(candidate);
    std::string text = manifest_in(path);
    if (!candidate.manifest_is_everywhere) {
      if (placement_.rank == candidate.teller) store_.set(phase_ + "manifest", text, with_a_moment(deadline_));
      if (content_hash(text.data(), text.size()) != candidate.id) text = store_.get(phase_ + "manifest", deadline_);
    }
    if (content_hash(text.data(), text.size()) != candidate.id) {
      throw DamagedCheckpoint(fmt::format("'{}/{}' has changed since the job looked at it", path, kManifestName));
    }
    return std::make_unique<CheckpointReader>(path, manifest_from_json(text, path));
  }

  // Before the exchange, in whose collectives the others would wait while a holder reads its whole shard.
  void verify_travelling(const ResumeCandidate& candidate, CheckpointReader& reader) const {
    for (const auto& [shard, holder] : candidate.travelling) {
      if (holder == placement_.rank && reader.has_shard(shard)) reader.verified_shard(shard);
    }
  }

  // All ranks together check all shards, before any state is read over: a job that may have to begin afresh needs its
  // starting state whole. In the same world a rank's share is what it reads anyway, and checked only once.
  void verify_share(const ResumeCandidate& candidate, CheckpointReader& reader) const {
    verify_travelling(candidate, reader);
    for (int rank = placement_.rank; rank < reader.world_size(); rank += placement_.world_size) {
      if (reader.has_shard(shard_name(rank))) reader.verified_shard(shard_name(rank));
    }
  }

  Report read_all(CheckpointReader& reader, bool fetched, RemoteNeeds& needs) {
    has_read_ = true;
    RestoreSource source(reader, fetched, [&] { agree(fetched ? "meet again" : "meet", {}); });
    attempt_(source);
    needs = std::move(source.needs_);
    if (!source.error_.empty()) return {source.is_damage_ ? Outcome::kDamaged : Outcome::kRefused, source.error_};
    return {needs.pieces.empty() && !needs.rng_of ? Outcome::kGood : Outcome::kNeedsOthers, ""};
  }

  static Report guarded(const std::function<void()>& work) {
    try {
      work();
      return {};
    } catch (const UserError& error) {
      return {Outcome::kDamaged, error.what()};
    }
  }

  // The worst that any rank tells, the same on all. Throws TimeoutError on all ranks, naming one that does not tell.
  Report agree(const char* phase, const Report& own) {
    const std::string key = phase_ + phase + "/";
    store_.set(key + std::to_string(placement_.rank), to_text(own), with_a_moment(deadline_));
    if (placement_.rank == 0) store_.set(key + "all", to_text(worst_of_all(key)), with_a_moment(deadline_));
    const Report worst = report_from(hear_verdict(key + "all"));
    if (worst.outcome == Outcome::kLate) throw TimeoutError(worst.message);
    deadline_ = Deadline::after(options_.timeout);  // all ranks are here now
    return worst;
  }

  Report worst_of_all(const std::string& key) {
    Report worst;
    for (int rank = 0; rank < placement_.world_size; ++rank) {
      Report report = told_by(rank, key + std::to_string(rank));
      if (report.outcome > worst.outcome) worst = std::move(report);
    }
    return worst;
  }

  Report told_by(int rank, const std::string& key) {
    try {
      return report_from(store_.get(key, deadline_));
    } catch (const TimeoutError& error) {
      return {Outcome::kLate,
              fmt::format("resuming: rank {} has not told the end of its part ({})", rank, error.what())};
    }
  }

  std::string hear_verdict(const std::string& key) {
    try {
      return store_.get(key, to_hear_verdict(deadline_));
    } catch (const TimeoutError& error) {
      throw TimeoutError(fmt::format("resuming: rank 0 has not told what came of it ({})", error.what()));
    }
  }

  // A path may be asked for after auto has found nothing.
  std::string keys() const { return is_auto() ? "checkpoint/resume/" : "checkpoint/resume_path/"; }
  std::string offer_key(int node) const { return fmt::format("{}offer/{}", keys(), node); }

  const RestoreOptions& options_;
  const Placement& placement_;
  rendezvous::Store& store_;
  comm::Communicator& world_;
  const std::function<void(RestoreSource&)>& attempt_;
  const std::string folder_;
  Deadline deadline_;  // for what the ranks do until they agree the next time
  std::string phase_;
  bool has_read_ = false;  // so the starting state is gone
};

std::optional<Restored> restore_checkpoint(const RestoreOptions& options, rendezvous::Store& store,
                                           comm::Communicator& world,
                                           const std::function<void(RestoreSource&)>& attempt) {
  return Restore(options, store, world, attempt).run();
}

}  // namespace dslaunch::runtime
