#include "runtime/engine/inference/chat_prompts.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "runtime/engine/inference/text_codec.hpp"
#include "spawn/captured_process.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

namespace fs = std::filesystem;

// Where it is installed, or in the source tree that this program was built in.
fs::path tokenize_tool(const std::string& messages) {
  std::error_code ignored;
  const fs::path programs = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* place : {"../share/dslaunch/tools/tokenize", "../../../tools/tokenize"}) {
    const fs::path tool = fs::weakly_canonical(programs / place, ignored);
    if (fs::is_regular_file(tool, ignored)) return tool;
  }
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("--messages '{}': chat templates are rendered by tools/tokenize, which is not beside this "
                  "program ({}); make prompts where it is: tools/tokenize '{}' prompts.jsonl --tokenizer DIR",
                  messages, programs.string(), messages));
}

// A directory, whose files beside the tokenizer have the template; or what the user has named.
std::string tokenizer_for(const InferModel& model, const std::string& messages) {
  if (!model.source().tokenizer.empty()) return model.source().tokenizer;
  const auto found = tokenizer_of(model);
  if (!found) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("--messages '{}' needs the chat template of a tokenizer, and there "
                                "is none beside the model; name its directory (--tokenizer DIR)",
                                messages));
  }
  std::error_code ignored;
  return fs::is_directory(*found, ignored) ? *found : fs::path(*found).parent_path().string();
}

// The tool's last line, without its name.
std::string reason_of(const spawn::CapturedProcess& ended) {
  if (ended.cause.kind == spawn::ExitCause::Kind::kNotStarted) return ended.cause.hint;
  std::string_view lines = ended.err;
  while (lines.ends_with('\n')) lines.remove_suffix(1);
  std::string_view line = lines.substr(lines.rfind('\n') + 1);
  constexpr std::string_view kName = "tools/tokenize: ";
  if (line.starts_with(kName)) line.remove_prefix(kName.size());
  return line.empty() ? fmt::format("exit code {}", ended.cause.shell_code()) : std::string(line);
}

}  // namespace

std::vector<Prompt> prompts_of_messages(const InferModel& model, const std::string& path) {
  open_input_file(path, "file of messages");
  std::vector<std::string> argv{tokenize_tool(path), fs::absolute(path), "-", "--tokenizer",
                                tokenizer_for(model, path)};
  if (const char* own = std::getenv("DSLAUNCH_PYTHON"); own != nullptr && *own != '\0') argv.insert(argv.begin(), own);
  const auto ended = spawn::run_captured(argv, "", /*captures_err=*/true);
  if (!ended.cause.success()) {
    const int code = ended.cause.shell_code();
    const bool is_ours = code == to_int(ExitCode::kBadInput) || code == to_int(ExitCode::kNoInput);
    throw UserError(is_ours ? static_cast<ExitCode>(code) : ExitCode::kUnavailable,
                    fmt::format("cannot render the messages of '{}': tools/tokenize: {}", path, reason_of(ended)));
  }
  return parse_prompts(ended.out, [&](size_t number) { return fmt::format("conversation {} of '{}'", number, path); });
}

}  // namespace dslaunch::runtime::engine::inference
