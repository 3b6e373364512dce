// Continues a text with the model and the weights of a checkpoint.
#include <cstdio>
#include <utility>

#include "command_line.hpp"
#include "commands.hpp"
#include "runtime/engine/inference/checkpoint_model.hpp"
#include "runtime/engine/inference/generate.hpp"

namespace dslaunch::worker {

int infer_command(const std::vector<std::string>& arguments) {
  std::string path, directory;
  runtime::engine::inference::GenerateOptions generate;
  CommandLine line("infer", "infer --checkpoint CKPT --prompt TEXT [options]",
                   "infer --checkpoint runs/a --prompt 'Once upon a time'");
  line.text("--checkpoint", path, "a run directory, a directory of checkpoints, or one checkpoint", "CKPT")->required();
  line.text("--prompt", generate.prompt, "text to continue", "TEXT")->required();
  line.value_from(1, "--num_tokens", generate.num_tokens, "how many bytes to add (200)", "N");
  line.value_from(0, "--temperature", generate.temperature, "0: always the likeliest (0.8)", "T");
  line.value("--seed", generate.seed, "of the sampling (0)", "N");
  line.value_from(1, "--context", generate.context,
                  "how many of the last bytes the model sees; without it as many as it takes, up to 4096", "N");
  line.text("--nvme_path", directory, "parameters rest in a file there, and are read as the model runs", "DIR");
  if (!line.parse(arguments)) return 0;

  auto checkpoint = runtime::engine::inference::load_checkpoint_model(path, directory);
  generate.tokenizer = checkpoint->tokenizer();
  bool has_begun = false;  // the prompt waits for the first byte: an error then has its own line
  runtime::engine::inference::generate(checkpoint->model(), generate, [&](char byte) {
    if (!std::exchange(has_begun, true)) std::fputs(generate.prompt.c_str(), stdout);
    std::fputc(byte, stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace dslaunch::worker
