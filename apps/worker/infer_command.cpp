// Continues a text with the model and the weights of a checkpoint.
#include <cstdio>
#include <utility>

#include "command_options.hpp"
#include "commands.hpp"
#include "runtime/engine/checkpoint_model.hpp"
#include "runtime/engine/generate.hpp"

namespace dslaunch::worker {
const CommandSpec& infer_spec() {
  static const CommandSpec spec{"infer",
                                {},
                                {{"checkpoint", "C", /*is_needed=*/true},
                                 {"prompt", "TEXT", /*is_needed=*/true},
                                 {"num_tokens", "N"},
                                 {"temperature", "T"},
                                 {"seed", "S"},
                                 {"context", "N"}}};
  return spec;
}

int infer_command(const std::vector<std::string>& arguments) {
  const CommandOptions options(arguments, infer_spec());
  runtime::GenerateOptions generate;
  generate.prompt = *options.value("prompt");
  generate.num_tokens = options.integer("num_tokens", 1).value_or(generate.num_tokens);
  generate.temperature = options.number("temperature", 0).value_or(generate.temperature);
  generate.seed = static_cast<uint64_t>(options.integer("seed", 0).value_or(0));
  generate.context = options.integer("context", 1).value_or(0);

  auto checkpoint = runtime::load_checkpoint_model(*options.value("checkpoint"));
  bool has_begun = false;  // the prompt waits for the first byte: an error then has its own line
  runtime::generate(checkpoint->model(), generate, [&](char byte) {
    if (!std::exchange(has_begun, true)) std::fputs(generate.prompt.c_str(), stdout);
    std::fputc(byte, stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace dslaunch::worker
