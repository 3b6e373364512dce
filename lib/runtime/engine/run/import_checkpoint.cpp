#include "runtime/engine/run/import_checkpoint.hpp"

#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/checkpoint/deepspeed/checkpoint_files.hpp"
#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/deepspeed/model_fit.hpp"
#include "runtime/checkpoint/deepspeed/write_imported.hpp"
#include "runtime/engine/setup/file_verification.hpp"
#include "runtime/engine/setup/saved_tensors.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

// The value of a parameter or buffer in the model file.
at::Tensor value_in(const model::Model& model, const std::string& name) {
  const auto& parameters = model.facts.table.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name != name) continue;
    if (model.initial.is_empty(static_cast<int>(i))) {
      throw UserError(
          ExitCode::kBadInput,
          fmt::format("the model's '{}' is frozen and has no values, and the checkpoint has no values for it", name));
    }
    return model.initial.value(static_cast<int>(i)).contiguous();
  }
  for (const auto& [buffer, value] : model.tensors.buffers()) {
    if (buffer == name) return value.contiguous();
  }
  throw UserError(ExitCode::kBadInput, fmt::format("the model has no '{}'", name));
}

// The model skeleton, in a file beside the output until it has been copied into the checkpoint.
class TemporarySkeleton {
 public:
  explicit TemporarySkeleton(std::string path) : path_(std::move(path)) {}
  ~TemporarySkeleton() { ::unlink(path_.c_str()); }
  TemporarySkeleton(const TemporarySkeleton&) = delete;
  TemporarySkeleton& operator=(const TemporarySkeleton&) = delete;

  void write(const std::string& model) const {
    make_parent();
    model::torchscript::write_model_skeleton(model, path_);
  }

 private:
  // OUT is created later, when the checkpoint is written.
  void make_parent() const {
    const auto parent = std::filesystem::path(path_).parent_path();
    std::error_code error;
    if (!parent.empty()) std::filesystem::create_directories(parent, error);
    if (error) throw SystemError("create the directory", parent.string(), error.value(), ExitCode::kCannotCreate);
  }

  const std::string path_;
};

// OUT and its missing parent directories, the innermost first. Directories that are still empty at the end are removed:
// the import has failed.
class CreatedDirectories {
 public:
  explicit CreatedDirectories(const std::string& out) {
    std::error_code ignored;
    for (std::filesystem::path path(out); !path.empty() && !std::filesystem::exists(path, ignored);
         path = path.parent_path()) {
      paths_.push_back(path);
    }
  }
  ~CreatedDirectories() {
    for (const auto& path : paths_) ::rmdir(path.c_str());
  }
  CreatedDirectories(const CreatedDirectories&) = delete;
  CreatedDirectories& operator=(const CreatedDirectories&) = delete;
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
};

ImportReport report_of(const deepspeed::ImportedState& state) {
  ImportReport out;
  out.source = state.files.directory;
  out.tag = state.files.tag;
  out.version = state.version;
  out.stage = state.stage;
  out.num_pipeline_stages = state.num_stages;
  out.world_size = static_cast<int>(state.shards.size());
  out.step = state.metadata.step;
  out.skipped_steps = state.skipped_steps;
  for (const auto& tensor : state.metadata.parameters) {
    ++(tensor.is_buffer ? out.num_buffers : tensor.trainable ? out.num_trained : out.num_frozen);
    out.num_elements += tensor.numel();
  }
  out.optimizer_states.assign(state.optimizer_states.begin(), state.optimizer_states.end());
  const auto scale = state.metadata.scalars.find("loss_scale");
  out.has_loss_scale = scale != state.metadata.scalars.end();
  if (out.has_loss_scale) out.loss_scale = scale->second;
  out.notes = state.notes;
  return out;
}

void require_no_checkpoint(const std::string& dir, int64_t step) {
  const FoundCheckpoint found = inspect_checkpoint(directory_of_step(dir, step));
  if (!found.has_manifest) return;
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("{} already is a checkpoint: use --overwrite to replace it, or another OUT", found.path));
}

}  // namespace

ImportReport import_checkpoint(const ImportRequest& request) {
  if (deepspeed::holds_checkpoint(request.out)) {
    throw UserError(
        ExitCode::kUsage,
        fmt::format(
            "'{}' has a checkpoint of DeepSpeed, whose 'latest' would be overwritten; choose another directory for OUT",
            request.out));
  }
  std::unique_ptr<model::Model> model;
  std::vector<SavedTensor> tensors;
  if (!request.model.empty()) {
    setup::FileVerification({request.model}).finish();
    model = model::torchscript::load_script_model(request.model, {});
    tensors = setup::saved_tensors_of(*model);
  }
  auto state =
      deepspeed::read_checkpoint(request.source, {request.tag, request.check_sums, model ? &tensors : nullptr});
  if (model) {
    deepspeed::fit_to_model(state, tensors, [&](const std::string& name) { return value_in(*model, name); });
  } else {
    deepspeed::strip_prefixes(state);
  }
  ImportReport report = report_of(state);
  std::string out = request.out;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  if (!request.overwrite) require_no_checkpoint(out, state.metadata.step);
  const CreatedDirectories created(out);
  const std::string skeleton_path = request.model.empty() ? "" : out + ".skeleton.tmp";
  if (request.before_writing) {
    auto unfinished = deepspeed::unfinished_files(state, out);
    if (!skeleton_path.empty()) unfinished.push_back(skeleton_path);
    unfinished.insert(unfinished.end(), created.paths().begin(), created.paths().end());
    request.before_writing(std::move(unfinished));
  }
  const TemporarySkeleton skeleton(skeleton_path);
  if (model) skeleton.write(request.model);
  report.checkpoint = deepspeed::write_imported(state, out, skeleton_path);
  return report;
}

}  // namespace dslaunch::runtime::engine::run
