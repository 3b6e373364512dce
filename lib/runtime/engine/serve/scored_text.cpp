#include "runtime/engine/serve/scored_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "base/utf8.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

using inference::TextCodec;
using nlohmann::ordered_json;

constexpr double kLeastLogprob = -9999;  // JSON has no infinity

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// As OpenAI writes tokens that are not text: their bytes, or the number of one without any.
std::string name_of(int64_t id, const TextCodec* codec) {
  const std::string text = codec != nullptr ? codec->token_text(id) : std::string();
  if (text.empty()) return fmt::format("token_id:{}", id);
  if (is_utf8(text)) return text;
  std::string out = "bytes:";
  for (const char byte : text) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

double as_number(float log_probability) {
  return std::max(static_cast<double>(log_probability), kLeastLogprob);
}

size_t count_characters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(
      utf8.begin(), utf8.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
}

}  // namespace

ScoredText::ScoredText(const TextCodec* codec, std::vector<std::string> stops, size_t begin)
    : codec_(codec), walked_characters_(begin), num_characters_(begin) {
  if (codec != nullptr) stream_.emplace(codec->stream(), std::move(stops));
}

void ScoredText::add(int64_t id, std::optional<inference::TokenScore> score, bool is_text) {
  pending_.push_back({std::move(score), id, stream_ ? stream_->bytes().size() : 0});
  if (stream_ && is_text) shown_ += stream_->add(id);
}

void ScoredText::finish() {
  is_finished_ = true;
  if (stream_ && !stream_->is_stopped()) shown_ += stream_->finish();
}

// A byte that is not UTF-8 is shown as one character.
size_t ScoredText::characters_before(size_t byte) {
  const std::string_view bytes = stream_ ? std::string_view(stream_->bytes()) : std::string_view();
  while (walked_bytes_ < std::min(byte, bytes.size())) {
    walked_bytes_ += std::max<size_t>(1, utf8_length(bytes.substr(walked_bytes_)));
    walked_characters_ += 1;
  }
  return walked_characters_;
}

ScoredText::Part ScoredText::take() {
  Part out;
  out.text = std::exchange(shown_, {});
  num_characters_ += count_characters(out.text);
  const auto is_shown = [this](const Token& token) {
    return is_finished_ || !stream_ || token.begin < stream_->num_shown();
  };
  const auto end = std::find_if_not(pending_.begin(), pending_.end(), is_shown);
  for (auto token = pending_.begin(); token != end; ++token) {
    out.ids.push_back(token->id);
    out.offsets.push_back(characters_before(token->begin));
    out.has_score.push_back(token->score.has_value());
    out.scores.push_back(std::move(token->score).value_or(inference::TokenScore{}));
  }
  pending_.erase(pending_.begin(), end);
  return out;
}

ordered_json ScoredText::logprobs(const Part& part, const TextCodec* codec) {
  ordered_json tokens = ordered_json::array(), values = tokens, tops = tokens;
  for (size_t i = 0; i < part.ids.size(); ++i) {
    const std::string name = name_of(part.ids[i], codec);
    tokens.push_back(name);
    if (!part.has_score[i]) {
      values.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    const double own = as_number(part.scores[i].log_probability);
    ordered_json top = ordered_json::object();
    for (const auto& [id, value] : part.scores[i].top) top.emplace(name_of(id, codec), as_number(value));
    top.emplace(name, own);  // unless it is among them
    values.push_back(own);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", part.offsets}};
}

}  // namespace dslaunch::runtime::engine::serve
