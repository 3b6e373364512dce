#include "runtime/text/tokenizer.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/text/tokenizer_files.hpp"

namespace dslaunch::runtime::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJsonFile = "tokenizer.json";
constexpr const char* kSentencePieceFiles[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};
// Of tokenizers that only Python reads.
constexpr const char* kOtherFiles[] = {"vocab.txt", "vocab.json", "tekken.json", "tiktoken.model"};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::optional<std::string> find_sentencepiece(const fs::path& directory) {
  for (const char* name : kSentencePieceFiles) {
    if (is_file(directory / name)) return (directory / name).string();
  }
  return std::nullopt;
}

std::string directory_of(const std::string& file) {
  const std::string directory = fs::path(file).parent_path().string();
  return directory.empty() ? std::string() : directory + "/";
}

std::string file_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  if (auto file = find_tokenizer(path)) return *file;
  for (const char* name : kOtherFiles) {
    if (is_file(fs::path(path) / name)) refuse_tokenizer((fs::path(path) / name).string(), "this kind of file");
  }
  throw UserError(
      ExitCode::kNoInput,
      fmt::format("no tokenizer in the directory '{}': it has neither tokenizer.json nor tokenizer.model", path));
}

std::unique_ptr<Tokenizer> read_sentencepiece_file(const std::string& file) {
  const std::string config_path = directory_of(file) + "tokenizer_config.json";
  const nlohmann::json config = read_json_file(config_path, /*is_optional=*/true);
  return read_sentencepiece(read_tokenizer_file(file), JsonNode(config, config_path), file);
}

// A Unigram model is SentencePiece's, whose own file often lies beside it.
std::unique_ptr<Tokenizer> read_json(const std::string& file) {
  const nlohmann::json document = read_json_file(file);
  const JsonNode root(document, file);
  const auto type = root["model"]["type"];
  const auto other =
      type.is_text() && type.text() == "Unigram" ? find_sentencepiece(fs::path(file).parent_path()) : std::nullopt;
  return other ? read_sentencepiece_file(*other) : read_tokenizer_json(root, file);
}

}  // namespace

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  const auto decoder = stream_decoder(skip_special);
  std::string out;
  for (const int64_t id : ids) out += decoder->push(id);
  return out + decoder->finish();
}

std::optional<std::string> find_tokenizer(const std::string& directory) {
  const fs::path json = fs::path(directory) / kJsonFile;
  return is_file(json) ? std::optional(json.string()) : find_sentencepiece(directory);
}

std::optional<std::string> find_tokenizer_of_model(const std::string& path, const std::string& source) {
  std::error_code ignored;
  fs::path directory = fs::absolute(path, ignored);
  if (!fs::is_directory(directory, ignored)) directory = directory.parent_path();
  std::vector<fs::path> places = {directory};
  if (!source.empty()) places.insert(places.begin(), source);
  const bool is_of_run = directory.parent_path().filename() == "checkpoints";
  if (is_of_run) places.push_back(directory.parent_path().parent_path());
  for (const fs::path& place : places) {
    if (auto file = find_tokenizer(place.string())) return file;
  }
  return std::nullopt;
}

void require_fit(const Tokenizer& tokenizer, int64_t num_embeddings) {
  if (tokenizer.vocabulary_size() <= num_embeddings) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("the tokenizer does not fit the model: '{}': it has {} tokens, and the model has embeddings "
                  "of {}; pass the tokenizer that made the model's data (--tokenizer PATH)",
                  tokenizer.path(), tokenizer.vocabulary_size(), num_embeddings));
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  const std::string file = file_of(path);
  auto tokenizer = file.ends_with(".json") ? read_json(file) : read_sentencepiece_file(file);
  tokenizer->special_ = read_special_tokens(*tokenizer, directory_of(file));
  return tokenizer;
}

}  // namespace dslaunch::runtime::text
