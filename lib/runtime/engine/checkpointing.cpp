#include "runtime/engine/checkpointing.hpp"

#include <ATen/ATen.h>

#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/shared_folder.hpp"
#include "runtime/state/random_state.hpp"

namespace dslaunch::runtime {
namespace {

// Always a copy of its own: the run changes the original while the copy is being written.
at::Tensor host_copy(const at::Tensor& values) {
  at::Tensor flat = values.detach().reshape({-1});
  return flat.is_cpu() ? flat.clone() : flat.to(at::kCPU);
}

std::string bytes_of(const at::Tensor& state) {
  const at::Tensor bytes = state.contiguous();
  return {reinterpret_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.nbytes())};
}

at::Tensor tensor_of(const std::string& bytes) {
  at::Tensor out = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), out.data_ptr<uint8_t>());
  return out;
}

CheckpointWriterOptions writer_options(const std::string& dir, const config::Checkpoint& checkpoint,
                                       const comm::Communicator& world) {
  CheckpointWriterOptions out;
  out.dir = dir;
  out.rank = world.rank();
  out.world_size = world.size();
  out.keep_last = checkpoint.keep_last;
  out.async = checkpoint.async;
  return out;
}

bool saves_anything(const config::Checkpoint& checkpoint) {
  return checkpoint.interval > 0 || checkpoint.at_end || checkpoint.on_interrupt;
}

}  // namespace

Checkpointing::Checkpointing(CheckpointingOptions options, ModelSource& model, Engine& engine,
                             comm::Communicator& world, rendezvous::Store& store, at::Device device)
    : options_(std::move(options)), model_(model), engine_(engine), world_(world), device_(device) {
  dir_ = options_.checkpoint.dir.empty() ? options_.run_dir + "/checkpoints" : options_.checkpoint.dir;
  skeleton_ = options_.run_dir + "/model_skeleton.pt";
  if (options_.several_hosts && saves_anything(options_.checkpoint)) {
    require_shared_folder(dir_, world_.rank(), world_.size(), store, Deadline::after(std::chrono::minutes(5)));
  }
  writer_ = std::make_unique<CheckpointWriter>(writer_options(dir_, options_.checkpoint, world_), store);
}

DataPosition Checkpointing::resume(const std::string& from) {
  if (from.empty()) return {};
  const auto path = from == "auto" ? newest_checkpoint(dir_) : std::optional(from);
  if (!path) {
    log::info("--resume auto: no complete checkpoint in {}, starting afresh", dir_);
    return {};
  }
  CheckpointReader reader(*path);
  const auto& saved = reader.metadata();
  reader.require_match(metadata({}).parameters);
  engine_.restore(saved.step, saved.scalars,
                  [&](const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out) {
                    reader.read_into(parameter, state, begin, std::move(out));
                  });
  restore_buffers(reader);
  if (auto rng = reader.rng_state(world_.rank(), world_.size())) restore_random_state(tensor_of(*rng), device_);
  if (world_.rank() == 0) log::info("resumed from {} (step {})", reader.path(), saved.step);
  last_step_ = saved.step;
  return saved.position;
}

void Checkpointing::restore_buffers(CheckpointReader& reader) {
  for (auto& [name, value] : model_.buffers()) {
    if (!reader.has(name, "buffer")) continue;
    at::Tensor host = at::empty(value.sizes(), value.options().device(at::kCPU));
    reader.read_into(name, "buffer", 0, host);
    value.copy_(host);
  }
}

void Checkpointing::save(const DataPosition& position, bool wait) {
  if (engine_.steps_done() == last_step_) {  // the interval's save and the end's fall together
    if (wait) writer_->finish();
    return;
  }
  CheckpointPart part;
  part.pieces = pieces();
  part.rng_state = bytes_of(save_random_state(device_));
  part.metadata = metadata(position);
  if (world_.rank() == 0) {
    if (!skeleton_written_) write_model_skeleton(options_.model_path, skeleton_);
    skeleton_written_ = true;
    part.skeleton = skeleton_;
  }
  last_step_ = engine_.steps_done();
  writer_->save(std::move(part));
  if (wait) writer_->finish();
}

void Checkpointing::finish() {
  writer_->finish();
}

std::string Checkpointing::last_saved() const {
  return writer_->last_saved_step() < 0 ? std::string() : dir_ + "/" + step_name(writer_->last_saved_step());
}

std::vector<StatePiece> Checkpointing::pieces() const {
  std::vector<StatePiece> out;
  for (const auto& owned : engine_.owned_state()) {
    out.push_back({owned.parameter, owned.state, owned.begin, host_copy(owned.values)});
  }
  if (world_.rank() != 0) return out;
  for (const auto& [name, value] : model_.buffers()) out.push_back({name, "buffer", 0, host_copy(value)});
  const auto& table = model_.table();
  for (size_t i = 0; i < table.parameters.size(); ++i) {
    const int index = static_cast<int>(i);
    if (!table.parameters[i].trainable && !model_.is_empty(index)) {
      out.push_back({table.parameters[i].name, "frozen", 0, host_copy(model_.initial_value(index))});
    }
  }
  return out;
}

CheckpointMetadata Checkpointing::metadata(const DataPosition& position) const {
  CheckpointMetadata out;
  out.step = engine_.steps_done();
  out.scalars = engine_.scalars();
  out.position = position;
  out.config = options_.resolved_config;
  for (const auto& parameter : model_.table().parameters) {
    out.parameters.push_back(
        {parameter.name, parameter.shape, parameter.dtype, parameter.trainable, false, parameter.aliases});
  }
  for (const auto& [name, value] : model_.buffers()) {
    out.parameters.push_back({name, value.sizes().vec(), value.scalar_type(), false, true, {}});
  }
  return out;
}

}  // namespace dslaunch::runtime
