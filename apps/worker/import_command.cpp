// Converts a DeepSpeed checkpoint to ours.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/shell_words.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "runtime/engine/run/import_checkpoint.hpp"
#include "unfinished_files.hpp"

namespace dslaunch::worker {
namespace {

void print_json(const runtime::engine::run::ImportReport& report) {
  nlohmann::ordered_json json{{"source", report.source},
                              {"tag", report.tag},
                              {"deepspeed_version", report.version},
                              {"zero_stage", report.stage},
                              {"pipeline_stages", report.num_pipeline_stages},
                              {"world_size", report.world_size},
                              {"step", report.step},
                              {"skipped_steps", report.skipped_steps},
                              {"parameters", {{"trained", report.num_trained}, {"frozen", report.num_frozen}}},
                              {"buffers", report.num_buffers},
                              {"elements", report.num_elements},
                              {"optimizer_states", report.optimizer_states},
                              {"loss_scale", nullptr},
                              {"notes", report.notes},
                              {"checkpoint", report.checkpoint}};
  if (report.has_loss_scale) json["loss_scale"] = report.loss_scale;
  std::puts(dump_json(json, 1).c_str());
}

void print_text(const runtime::engine::run::ImportReport& report, bool has_model) {
  log::info("read {}: DeepSpeed {}, ZeRO stage {}, {}{} rank{}, step {}{}", report.source, report.version, report.stage,
            report.num_pipeline_stages > 1 ? fmt::format("{} pipeline stages, ", report.num_pipeline_stages) : "",
            report.world_size, report.world_size == 1 ? "" : "s", report.step,
            report.skipped_steps ? fmt::format(" ({} skipped)", report.skipped_steps) : "");
  log::info("{} trained and {} frozen parameters, {} buffers, {} elements; optimizer: {}", report.num_trained,
            report.num_frozen, report.num_buffers, report.num_elements,
            report.optimizer_states.empty() ? "none, weights only"
                                            : fmt::format("{}", fmt::join(report.optimizer_states, ", ")));
  for (const auto& note : report.notes) log::info("note: {}", note);
  log::info("wrote {}", report.checkpoint);
  if (has_model)
    log::info("continue with: dslaunch run --resume {} MODEL.pt --config FILE", shell_word(report.checkpoint));
}

}  // namespace

int import_command(const std::vector<std::string>& arguments) {
  std::string source, out, tag, model;
  bool overwrite = false, json = false, skip_checksums = false;
  CommandLine line("import", "import DS_CHECKPOINT_DIR OUT [options]",
                   "import ds_run/ckpt runs/a/checkpoints --model model.pt");
  line.operand("DS_CHECKPOINT_DIR", source, "the directory with 'latest', or a tag's directory");
  line.operand("OUT", out, "the directory of checkpoints that gets OUT/step_N");
  line.text("--tag", tag, "which checkpoint; without it the one that 'latest' names", "TAG");
  line.text("--model", model, "names, kinds and code of the model that resumes", "MODEL.pt");
  line.flag("--overwrite", overwrite, "replace a checkpoint of the same step in OUT");
  line.flag("--json", json, "one document on standard output");
  line.flag("--skip_checksums", skip_checksums, "for files saved by torch with CRC32 off");
  if (!line.parse(arguments)) return 0;
  const auto report =
      runtime::engine::run::import_checkpoint({source, out, tag, model, !skip_checksums, overwrite, remove_when_ended});
  print_text(report, !model.empty());
  if (json) print_json(report);
  return 0;
}

}  // namespace dslaunch::worker
