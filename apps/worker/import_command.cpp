// Converts a DeepSpeed checkpoint to ours.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/shell_words.hpp"
#include "command_options.hpp"
#include "commands.hpp"
#include "runtime/engine/import_checkpoint.hpp"
#include "unfinished_files.hpp"

namespace dslaunch::worker {
namespace {

void print_json(const runtime::ImportReport& report) {
  nlohmann::ordered_json json{{"source", report.source},
                              {"tag", report.tag},
                              {"deepspeed_version", report.version},
                              {"zero_stage", report.stage},
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

void print_text(const runtime::ImportReport& report, bool has_model) {
  log::info("read {}: DeepSpeed {}, ZeRO stage {}, {} rank{}, step {}{}", report.source, report.version, report.stage,
            report.world_size, report.world_size == 1 ? "" : "s", report.step,
            report.skipped_steps ? fmt::format(" ({} skipped)", report.skipped_steps) : "");
  log::info("{} trained and {} frozen parameters, {} buffers, {} elements; optimizer: {}", report.num_trained,
            report.num_frozen, report.num_buffers, report.num_elements,
            report.optimizer_states.empty() ? "none, weights only"
                                            : fmt::format("{}", fmt::join(report.optimizer_states, ", ")));
  for (const auto& note : report.notes) log::info("note: {}", note);
  log::info("wrote {}", report.checkpoint);
  if (has_model)
    log::info("go on with: dslaunch run --resume {} MODEL.pt --config FILE", shell_word(report.checkpoint));
}

}  // namespace

const CommandSpec& import_spec() {
  static const CommandSpec spec{"import",
                                {"DS_CHECKPOINT_DIR", "OUT"},
                                {{"tag", "TAG"}, {"model", "MODEL.pt"}, {"overwrite"}, {"json"}, {"skip_checksums"}}};
  return spec;
}

int import_command(const std::vector<std::string>& arguments) {
  const CommandOptions options(arguments, import_spec());
  const auto report = runtime::import_checkpoint({options.operand(0), options.operand(1), options.value_or("tag", ""),
                                                  options.value_or("model", ""), !options.has("skip_checksums"),
                                                  options.has("overwrite"), remove_when_ended});
  print_text(report, options.has("model"));
  if (options.has("json")) print_json(report);
  return 0;
}

}  // namespace dslaunch::worker
