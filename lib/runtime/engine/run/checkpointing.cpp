#include "runtime/engine/run/checkpointing.hpp"

#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/small_file.hpp"
#include "base/unshare_file.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"
#include "runtime/checkpoint/checkpoint_directory.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/saved_tensors.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/local_slice_layout.hpp"
#include "runtime/state/tensor_bytes.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

// Allows for a rank whose host reads the model from cold storage; as long as the timeout of collectives.
constexpr std::chrono::minutes kMaxWait{30};

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

CheckpointWriterOptions writer_options(const std::string& dir, const CheckpointingOptions& options,
                                       const CheckpointStorageTopology& share, const comm::Communicator& world,
                                       std::chrono::milliseconds timeout) {
  CheckpointWriterOptions out;
  out.dir = dir;
  out.rank = world.rank();
  out.world_size = world.size();
  out.keep_last = options.checkpoint.keep_last;
  out.async = options.checkpoint.async;
  out.timeout = timeout;
  out.share = share;
  out.host = options.placement.host;
  out.final_timeout = std::min(out.final_timeout, options.hang_limit);
  out.watchdog = options.watchdog;
  return out;
}

bool saves_anything(const CheckpointingOptions& options) {
  const auto& checkpoint = options.checkpoint;
  return options.saves &&
         (checkpoint.interval > 0 || checkpoint.at_end || checkpoint.on_interrupt || checkpoint.keep_best);
}

void require_single_directory_for_full_weights(const CheckpointingOptions& options,
                                               const CheckpointStorageTopology& share) {
  if (!options.full_weights || share.is_single_directory()) return;
  throw UserError(ExitCode::kBadInput,
                  "zero_optimization.stage3_gather_16bit_weights_on_model_save needs a directory that all hosts see: "
                  "with use_node_local_storage no host has all shards. Switch one of the two off; `dslaunch "
                  "consolidate` produces full weights from directories that were copied into one");
}

// Two jobs that use the same checkpoint directory would remove each other's checkpoints. The default directory is
// inside the run directory, which the job has locked. A lock held by an earlier attempt of this job on a lost host does
// not belong to another job.
DirectoryLock lock_directory(const std::string& dir, const CheckpointingOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) throw SystemError("create directory", "'" + dir + "'", error.value(), ExitCode::kCannotCreate);
  const std::string file = dir + "/.checkpoints.lock";
  const std::string job = options.job.empty() ? "a job" : "job " + options.job;
  auto lock =
      DirectoryLock::try_lock(file, fmt::format("{} (process {} on {})", job, ::getpid(), options.placement.host));
  if (lock.ok()) return *std::move(lock);
  const std::string& holder = lock.error();
  if (!options.job.empty() && holder.starts_with(job + " ")) {
    log::warning("an earlier attempt of this job still locks '{}': {}", dir, holder);
    return {};
  }
  throw UserError(
      ExitCode::kCannotCreate,
      fmt::format(
          "cannot save into '{}': {} is using it, and two jobs would remove each other's checkpoints. End that job "
          "first, or set another checkpoint.dir for this job; if the host of that job no longer exists, remove '{}'",
          dir, holder, file));
}

// Offloaded values are read where they rest, files block by block.
PieceValues values_of(const step::OwnedState& owned) {
  if (owned.values.defined() && !owned.range) return owned.values;
  return {owned.count, at::kFloat, [owned](int64_t begin, int64_t count) { return owned.read(begin, count); }};
}

}  // namespace

Checkpointing::Checkpointing(CheckpointingOptions options, model::Model& model, step::Engine& engine,
                             const comm::Groups& groups, rendezvous::Store& store, at::Device device)
    : options_(std::move(options)),
      model_(model),
      engine_(engine),
      groups_(groups),
      store_(store),
      device_(device),
      timeout_(time_for_checkpoint(setup::saved_tensors_of(model))),
      copies_(device) {
  if (saves_anything(options_)) require_savable(metadata({}));  // now, not after the training
  dir_ = options_.checkpoint.dir.empty() ? options_.run_dir + "/checkpoints" : options_.checkpoint.dir;
  if (options_.placement.num_nodes > 1 && saves_anything(options_)) {
    share_ = detect_storage_topology(dir_, options_.checkpoint.use_node_local_storage, options_.placement, store,
                                     Deadline::after(kMaxWait), options_.watchdog);
    require_single_directory_for_full_weights(options_, share_);
  }
  if (!options_.checkpoint.dir.empty() && saves_anything(options_) && groups_.world.rank() == share_.leader) {
    lock_ = lock_directory(dir_, options_);
  }
  writer_ = std::make_unique<CheckpointWriter>(writer_options(dir_, options_, share_, groups_.world, timeout_), store);
  engine_.observe(*this);
  const bool saves_midway = options_.checkpoint.interval > 0 || options_.checkpoint.keep_best;
  if (options_.saves && options_.checkpoint.async && saves_midway) prepare_copies();
}

void Checkpointing::prepare_copies() {
  std::vector<int64_t> sizes;
  at::Tensor last;
  for (const auto& owned : engine_.owned_state()) {
    if (owned.is_offloaded || owned.values.is_same(std::exchange(last, owned.values))) continue;
    sizes.push_back(static_cast<int64_t>(owned.values.nbytes()));
  }
  if (engine_.ownership().owns_buffers()) {
    for (const auto& [name, value] : model_.tensors.buffers()) sizes.push_back(static_cast<int64_t>(value.nbytes()));
  }
  copies_.prepare(std::move(sizes));
}

void Checkpointing::save(const DataPosition& position, bool wait) {
  if (engine_.steps_done() == last_step_) {  // the save of the interval and the save at the end coincide
    if (wait) wait_for_writer();
    return;
  }
  const SaveStalls before = stalls_;
  wait_for_writer();  // the writer still reads the copies
  const Stopwatch watch;
  CheckpointPart part;
  copies_.begin();
  part.pieces = pieces();
  copies_.end();
  part.wait_for_copies = [this] { copies_.wait_until_arrived(); };
  part.rng_state = bytes_of_tensor(device::save_random_state(device_));
  part.metadata = metadata(position);
  if (groups_.world.rank() == share_.leader) part.skeleton = skeleton();
  if (groups_.world.rank() == 0 && options_.full_weights) part.full_weights = FullWeights{options_.float_dtype};
  part.best = std::exchange(next_best_, "");
  last_step_ = engine_.steps_done();
  stalls_.copying_ms += watch.ms();
  start_writing(std::move(part));
  if (wait) wait_for_writer();
  stalls_.num_saves += 1;
  if (groups_.world.rank() == 0) {
    const double waited = stalls_.waiting_ms - before.waiting_ms, copied = stalls_.copying_ms - before.copying_ms;
    log::info(
        "{} checkpoint of step {}: training blocked for {:.1f} ms ({:.1f} waiting for files, {:.1f} copying {:.1f} MB)",
        wait ? "saved the" : "saving a", last_step_, waited + copied, waited, copied,
        static_cast<double>(copies_.num_bytes()) / 1e6);
  }
}

void Checkpointing::save_as_best(const DataPosition& position, bool wait, const std::string& best) {
  if (engine_.steps_done() == last_step_) {
    wait_for_writer();
    name_best(best);
  } else {
    next_best_ = best;
    save(position, wait);
  }
}

void Checkpointing::restore_best(const std::string& best) {
  if (!best.empty() && read_plain_file(dir_ + "/" + kBestName).bytes != best) name_best(best);
}

// The checkpoints are complete, and `best` only helps to find one: an error costs the name, not the run.
void Checkpointing::name_best(const std::string& best) const {
  if (groups_.world.rank() != share_.leader || !has_checkpoint(engine_.steps_done())) return;
  try {
    write_best(dir_, best);
    prune_checkpoints(dir_, engine_.steps_done(), options_.checkpoint.keep_last);
  } catch (const Error& error) {
    log::warning("{}; '{}/{}' does not name the best checkpoint, which is {}", error.what(), dir_, kBestName,
                 best.substr(0, best.find(' ')));
  }
}

bool Checkpointing::has_checkpoint(int64_t step) const {
  std::error_code ignored;
  return std::filesystem::exists(directory_of_step(dir_, step) + "/" + kManifestName, ignored);
}

std::string Checkpointing::path_of(int64_t step) const {
  return dir_ + "/" + step_name(step);
}

// The state of a save that is still in progress: its copies are taken before it changes. Offloaded state is too large
// to be copied, so it is written before it changes, and the update after a save is never early: most of the files' time
// is that of its forward and backward.
void Checkpointing::before_update(std::span<const SpanState>, const step::ApplyUpdate&) {
  copies_.block_current_stream();
  if (std::exchange(reads_offloaded_, false)) wait_for_writer();
}

void Checkpointing::wait_for_writer() {
  const Stopwatch watch;
  writer_->finish();
  stalls_.waiting_ms += watch.ms();
}

// If checkpoint.async is false, returns after the files are written.
void Checkpointing::start_writing(CheckpointPart part) {
  const Stopwatch watch;
  writer_->save(std::move(part));
  stalls_.waiting_ms += watch.ms();
}

void Checkpointing::finish() {
  wait_for_writer();
  if (groups_.world.rank() != 0 || stalls_.num_saves < 2) return;
  log::info("{} checkpoints: training blocked for {:.1f} ms in total", stalls_.num_saves,
            stalls_.waiting_ms + stalls_.copying_ms);
}

std::string Checkpointing::last_saved() const {
  return writer_->last_saved_step() < 0 ? std::string() : path_of(writer_->last_saved_step());
}

std::string Checkpointing::directory() const {
  return saves_anything(options_) ? dir_ : std::string();
}

// The model's code with emptied weights. Written once for all saves, and again if somebody has removed the run
// directory. A leader on another host has no run directory yet, and may see the run directory of rank 0, so it uses its
// own subdirectory. The file's name is part of its bytes, so it is the same everywhere.
std::string Checkpointing::skeleton() {
  std::error_code ignored;
  if (!skeleton_.empty() && std::filesystem::exists(skeleton_, ignored)) return skeleton_;
  const std::string directory =
      options_.run_dir + (share_.leader == 0 ? "" : fmt::format("/node_{}", options_.placement.node));
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw SystemError("create directory", "'" + directory + "'", error.value(), ExitCode::kCannotCreate);
  skeleton_ = directory + "/model_skeleton.pt";
  unshare_file(skeleton_);
  model::torchscript::write_model_skeleton(options_.model_path, skeleton_);
  return skeleton_;
}

std::vector<StatePiece> Checkpointing::pieces() {
  std::vector<StatePiece> out;
  reads_offloaded_ = false;
  at::Tensor last, copy;  // a run of local elements
  for (auto& owned : engine_.owned_state()) {
    reads_offloaded_ |= owned.is_offloaded;
    if (!owned.is_offloaded) {
      if (!owned.values.is_same(last)) copy = copies_.take(last = owned.values);
      owned.values = copy;
    }
    out.push_back({owned.parameter, owned.state, owned.begin, values_of(owned), owned.slice});
  }
  for (const auto& part : owned_frozen()) add_frozen(part, out);
  if (!engine_.ownership().owns_buffers()) return out;
  for (const auto& [name, value] : model_.tensors.buffers())
    out.push_back({name, "buffer", 0, copies_.take_before_forward(value)});
  return out;
}

// Nothing writes to these, so no copy is needed.
void Checkpointing::add_frozen(const step::FrozenPart& frozen, std::vector<StatePiece>& out) const {
  const auto& info = model_.facts.table.parameters[static_cast<size_t>(frozen.parameter)];
  const at::Tensor values = frozen_part(frozen).contiguous();
  const auto read = [values](int64_t first, int64_t numel) { return values.narrow(0, first, numel); };
  for (const auto& part : LocalSliceLayout(info).parts(frozen.begin, frozen.begin + frozen.count)) {
    out.push_back({info.name,
                   "frozen",
                   part.begin(),
                   {part.count(), info.dtype,
                    [part, read](int64_t first, int64_t numel) { return part.gather(first, numel, read); }},
                   part.slice()});
  }
}

// The frozen parameters that this rank saves: its parts of the sharded ones, and the unsharded ones that it owns.
std::vector<step::FrozenPart> Checkpointing::owned_frozen() const {
  auto out = engine_.owned_frozen();
  const auto& parameters = model_.facts.table.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int parameter = static_cast<int>(i);
    if (parameters[i].trainable || engine_.shards_frozen(parameter)) continue;
    if (!engine_.ownership().owns_unsharded(parameter)) continue;
    out.push_back({parameter, 0, parameters[i].numel});
  }
  return out;
}

// In the dtype of the model file or the checkpoint; this run may compute in a shorter dtype. 1-D.
at::Tensor Checkpointing::frozen_part(const step::FrozenPart& part) const {
  const auto& info = model_.facts.table.parameters[static_cast<size_t>(part.parameter)];
  if (const auto loaded = loaded_frozen_.find({part.parameter, part.begin}); loaded != loaded_frozen_.end()) {
    return loaded->second;
  }
  if (!model_.initial.is_empty(part.parameter)) {
    return local_part(model_.initial.value(part.parameter), info.slice).reshape({-1}).narrow(0, part.begin, part.count);
  }
  at::Tensor values = at::empty({part.count}, at::kFloat);
  setup::initial_values(model_, options_.init, options_.model_path)(part.parameter, part.begin, values);
  return values.to(info.dtype);
}

CheckpointMetadata Checkpointing::metadata(const DataPosition& position) const {
  CheckpointMetadata out;
  out.step = engine_.steps_done();
  out.mesh = groups_.mesh;
  out.position = position;
  out.scalars = engine_.scalars();
  out.config = options_.resolved_config;
  out.job = options_.job;
  out.parameters = options_.whole_model.empty() ? setup::saved_tensors_of(model_) : options_.whole_model;
  for (auto& tensor : out.parameters) {
    if (const auto start = moment_starts_.find(tensor.name); start != moment_starts_.end()) {
      tensor.moments_since = start->second;
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::run
