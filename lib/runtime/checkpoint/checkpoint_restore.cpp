#include "runtime/checkpoint/checkpoint_restore.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/restore_agreement.hpp"
#include "runtime/checkpoint/resume_plan.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;
using Report = RestoreReport;
using Outcome = RestoreReport::Outcome;

constexpr const char* kAdvice =
    "name another checkpoint with --resume, or use --resume auto to take the newest intact checkpoint";

// The manifest's bytes; empty when there is none.
std::string manifest_in(const std::string& directory) {
  std::error_code ignored;
  const std::string path = directory + "/" + kManifestName;
  if (!fs::is_regular_file(path, ignored)) return {};
  const auto file = MappedFile::open(path, "checkpoint file");
  return {reinterpret_cast<const char*>(file->data()), file->size()};
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(path) / kManifestName, ignored);
}

// Any error in such a part counts as damage.
Report report_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const UserError& error) {
    return {Outcome::kDamaged, error.what()};
  }
}

// One restore on one rank, from start to end.
class Restore {
 public:
  Restore(const RestoreOptions& options, rendezvous::Store& store, comm::Communicator& world,
          const std::function<void(RestoreSource&)>& attempt)
      : options_(options),
        placement_(options.placement),
        world_(world),
        attempt_(attempt),
        directory_(is_auto() ? options.dir : resolve_checkpoint_path(options.from)),
        // A path may be requested after auto has found nothing.
        ranks_(store, options.placement, options.timeout, is_auto() ? "checkpoint/resume/" : "checkpoint/resume_path/",
               options.watchdog) {}

  std::optional<Restored> run() {
    const ResumePlan plan = agree_on_plan();
    if (must_refuse(plan)) refuse(plan);
    for (const auto& line : plan.skipped) warn("skipping checkpoint {}", line);
    if (plan.candidates.empty()) return without_candidates(plan);
    std::string fault;
    for (size_t i = 0; i < plan.candidates.size(); ++i) {
      const auto& candidate = plan.candidates[i];
      if (i > 0) warn("{}; FALLING BACK to '{}'", fault, candidate.path);
      ranks_.begin_attempt(i);
      Restored restored{path_of(candidate), {}};
      const Report report = try_candidate(candidate, restored.metadata);
      if (report.succeeded()) return restored;
      throw_if_final(report);
      fault = report.message;
    }
    if (is_of_one_job() && !has_read_) return restart_from_beginning(fault);
    throw DamagedCheckpoint(
        fmt::format("--resume auto: no checkpoint in '{}' is usable; the last error: {}", directory_, fault));
  }

 private:
  bool is_auto() const { return options_.from == "auto"; }
  bool is_of_one_job() const { return is_auto() && !options_.job.empty(); }
  // The user named a checkpoint, not a directory of checkpoints; then nothing else is considered.
  bool is_named() const { return !is_auto() && is_checkpoint(directory_); }

  template <class... Parts>
  void warn(fmt::format_string<Parts...> text, Parts&&... parts) const {
    if (placement_.rank == 0) log::warning(text, std::forward<Parts>(parts)...);
  }

  // Planning --------------------------------------------------------------------------------------------------------

  // On this host, where the path may not exist.
  std::string path_of(const ResumeCandidate& candidate) const {
    return is_named() ? directory_ : directory_of_step(directory_, candidate.step);
  }

  ResumePlan agree_on_plan() {
    const auto offer_key = [](int node) { return fmt::format("offer/{}", node); };
    if (placement_.leads_node()) ranks_.send(offer_key(placement_.node), to_text(survey()));
    const auto waiting = ranks_.begin_wait("plan");
    if (placement_.rank == 0) {
      std::vector<ResumeOffer> offers;
      for (int node = 0; node < placement_.num_nodes; ++node)
        offers.push_back(offer_from(ranks_.receive(offer_key(node))));
      ranks_.send("plan", to_text(plan_resume(offers)));
    }
    return plan_from(ranks_.receive_verdict("plan"));
  }

  ResumeOffer survey() const {
    auto found = is_named() ? std::vector{inspect_checkpoint(directory_)} : survey_checkpoints(directory_);
    if (!options_.job.empty() && !is_named()) {  // one with an unreadable manifest stays, to be named
      std::erase_if(found, [&](const auto& one) {
        return one.manifest && (one.manifest->metadata.job == options_.job) != is_auto();
      });
    }
    return offer_of(std::move(found), is_named() ? std::nullopt : latest_step(directory_), placement_.rank,
                    placement_.host);
  }

  // No usable checkpoint --------------------------------------------------------------------------------------------

  bool must_refuse(const ResumePlan& plan) const {
    if (plan.candidates.empty()) return !is_of_one_job() && (!is_auto() || plan.has_damaged);
    // In a restart an unreadable checkpoint may be this job's own; older ones were good enough when the job began.
    return !is_auto() && options_.job.empty() && plan.newest_is_damaged;
  }

  std::optional<Restored> without_candidates(const ResumePlan& plan) const {
    if (!plan.has_damaged) return std::nullopt;
    return restart_from_beginning("see above");
  }

  // The job knows where it began, so damage costs the job's steps but never ends the job.
  std::optional<Restored> restart_from_beginning(const std::string& why) const {
    warn("no checkpoint of this job in '{}' is usable ({}); FALLING BACK to the job's start", directory_, why);
    return std::nullopt;
  }

  // The error names what was skipped, so that no warning has to.
  [[noreturn]] void refuse(const ResumePlan& plan) const {
    if (plan.has_damaged) {
      const std::string what =
          plan.skipped.size() == 1
              ? fmt::format("the checkpoint is damaged: {}; ", plan.skipped.front())
              : fmt::format("{} in '{}' is damaged:\n  {}\n", is_auto() ? "every checkpoint" : "the checkpoint",
                            directory_, fmt::join(plan.skipped, "\n  "));
      throw DamagedCheckpoint(what + (is_auto() ? "name another checkpoint with --resume PATH, or move the directory "
                                                  "away to start from scratch"
                                                : kAdvice));
    }
    CheckpointReader reader_with_reason(directory_);  // on rank 0's host, as the user named it
    throw UserError(ExitCode::kNoInput, fmt::format("no host of this job sees a checkpoint at '{}'", directory_));
  }

  void throw_if_final(const Report& report) const {
    if (report.outcome == Outcome::kRefused) throw UserError(ExitCode::kBadInput, report.message);
    if (!is_auto()) throw DamagedCheckpoint(fmt::format("{}; {}", report.message, kAdvice));
  }

  // One candidate ---------------------------------------------------------------------------------------------------

  // Opens, reads, fetches the parts on other hosts and reads again; the ranks agree after each.
  Report try_candidate(const ResumeCandidate& candidate, CheckpointMetadata& metadata) {
    std::unique_ptr<CheckpointReader> reader;
    Report report = ranks_.agree("open", report_of([&] { reader = open(candidate); }));
    if (!report.succeeded()) return report;
    metadata = reader->metadata();
    if (is_of_one_job()) {
      report = ranks_.agree("verify all", report_of([&] { verify_share(candidate, *reader); }));
      if (!report.succeeded()) return report;
    }
    RemoteNeeds needs;
    report = ranks_.agree("read", read_all(*reader, /*is_fetched=*/false, needs));
    if (report.outcome != Outcome::kNeedsRemote) return report;
    report = ranks_.agree("verify", report_of([&] { verify_sent_shards(candidate, *reader); }));
    if (!report.succeeded()) return report;
    const auto fetched = fetch_remote_pieces(world_, options_.device, candidate.shard_senders, needs, *reader);
    report = ranks_.agree("fetch", fetched.ok() ? Report{} : Report{Outcome::kDamaged, fetched.error()});
    if (!report.succeeded()) return report;
    return ranks_.agree("read again", read_all(*reader, /*is_fetched=*/true, needs));
  }

  std::unique_ptr<CheckpointReader> open(const ResumeCandidate& candidate) {
    const std::string path = path_of(candidate);
    std::string text = manifest_in(path);
    if (!candidate.manifest_is_everywhere) {
      if (placement_.rank == candidate.manifest_sender) ranks_.send("manifest", text);
      if (content_hash(text.data(), text.size()) != candidate.id) text = ranks_.receive("manifest");
    }
    if (content_hash(text.data(), text.size()) != candidate.id) {
      throw DamagedCheckpoint(fmt::format("'{}/{}' has changed since the job inspected it", path, kManifestName));
    }
    auto reader = std::make_unique<CheckpointReader>(path, manifest_from_json(text, path));
    reader->check_beside(placement_.num_nodes == 1 ? std::optional(share_of(*reader)) : std::nullopt);
    return reader;
  }

  // With the same world size what a rank reads anyway. With another one it may read parts of all shards: the ranks of a
  // single host check each shard once; several hosts read only the shards that they need.
  std::vector<std::string> share_of(const CheckpointReader& reader) const {
    std::vector<std::string> out;
    for (int rank = placement_.rank; rank < reader.world_size(); rank += placement_.world_size) {
      out.push_back(shard_name(rank));
    }
    return out;
  }

  // All ranks together check all shards before any state is overwritten: a job that may have to start from scratch
  // needs its initial state intact.
  void verify_share(const ResumeCandidate& candidate, CheckpointReader& reader) const {
    verify_sent_shards(candidate, reader);
    for (const auto& shard : share_of(reader)) {
      if (reader.has_shard(shard)) reader.verified_shard(shard);
    }
  }

  // Before the exchange; otherwise the other ranks would wait in its collectives while a holder reads its whole shard.
  void verify_sent_shards(const ResumeCandidate& candidate, CheckpointReader& reader) const {
    for (const auto& [shard, holder] : candidate.shard_senders) {
      if (holder == placement_.rank && reader.has_shard(shard)) reader.verified_shard(shard);
    }
  }

  Report read_all(CheckpointReader& reader, bool is_fetched, RemoteNeeds& needs) {
    has_read_ = true;
    RestoreSource source(reader, is_fetched, [&] { ranks_.agree(is_fetched ? "meet again" : "meet", {}); });
    attempt_(source);
    const Report hashes = report_of([&] { reader.finish_checks(); });
    if (!hashes.succeeded()) return hashes;
    const auto& [needed, outcome, has_damage] = source.findings();
    needs = needed;
    if (!outcome.ok()) return {has_damage ? Outcome::kDamaged : Outcome::kRefused, outcome.error()};
    return {needs.pieces.empty() && !needs.rng_of ? Outcome::kSuccess : Outcome::kNeedsRemote, ""};
  }

  const RestoreOptions& options_;
  const Placement& placement_;
  comm::Communicator& world_;
  const std::function<void(RestoreSource&)>& attempt_;
  const std::string directory_;
  RestoreAgreement ranks_;
  bool has_read_ = false;  // then the initial state is overwritten
};

}  // namespace

std::optional<Restored> restore_checkpoint(const RestoreOptions& options, rendezvous::Store& store,
                                           comm::Communicator& world,
                                           const std::function<void(RestoreSource&)>& attempt) {
  return Restore(options, store, world, attempt).run();
}

}  // namespace dslaunch::runtime
