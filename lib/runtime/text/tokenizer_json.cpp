#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "runtime/text/added_tokens.hpp"
#include "runtime/text/byte_pair_encoding.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/decoders.hpp"
#include "runtime/text/normalizers.hpp"
#include "runtime/text/pre_tokenizers.hpp"
#include "runtime/text/tokenizer_files.hpp"

namespace dslaunch::runtime::text {
namespace {

// The tokens that a post-processor puts around a text.
struct Surroundings {
  std::vector<int64_t> before, after;
};

Surroundings read_template(const JsonNode& node) {
  Surroundings out;
  bool has_text = false;
  for (const JsonNode& item : node["single"].list()) {
    if (const auto special = item["SpecialToken"]; !special.is_null()) {
      const auto ids = node["special_tokens"][special["id"].text()]["ids"].list();
      if (ids.empty()) special.fail("a token that the template does not define");
      for (const JsonNode& id : ids) (has_text ? out.after : out.before).push_back(id.id());
    } else {
      if (std::exchange(has_text, true)) item.refuse("a template with the text twice");
      if (item["Sequence"]["id"].text() != "A") item.refuse("a template without the text A");
    }
  }
  if (!has_text) node["single"].refuse("a template without the text");
  return out;
}

// BertProcessing and RobertaProcessing: ["</s>", 2].
int64_t read_pair(const JsonNode& node) {
  const auto pair = node.list();
  if (pair.size() != 2) node.fail("expected a token and its id");
  return pair[1].id();
}

Surroundings read_post_processor(const JsonNode& node) {
  if (node.is_null()) return {};
  const std::string type = node.type();
  if (type == "ByteLevel") return {};  // changes offsets, which we do not give
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{read_pair(node["cls"])}, {read_pair(node["sep"])}};
  }
  if (type != "Sequence") node.refuse(fmt::format("the post-processor {}", type));
  Surroundings out;
  for (const JsonNode& step : node["processors"].list()) {
    const auto outer = read_post_processor(step);
    out.before.insert(out.before.begin(), outer.before.begin(), outer.before.end());
    out.after.insert(out.after.end(), outer.after.begin(), outer.after.end());
  }
  return out;
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const JsonNode& root, const std::string& path)
      : Tokenizer(path),
        normalizer_(read_normalizer(root["normalizer"])),
        pre_tokenizer_(read_pre_tokenizer(root["pre_tokenizer"])),
        surroundings_(read_post_processor(root["post_processor"])),
        make_steps_(read_decoder(root["decoder"])),
        model_(root["model"]),
        added_(root["added_tokens"], *normalizer_, [this](std::string_view piece) { return model_.id_of(piece); }) {}

  std::vector<int64_t> encode(std::string_view text, bool add_special) override {
    const std::string valid = valid_utf8(text);
    std::vector<int64_t> out;
    if (add_special) out = surroundings_.before;
    for (const TextPart& part : added_.split(valid, /*is_normalized=*/false)) {
      if (part.token) {
        out.push_back(*part.token);
      } else {
        encode_part(part.text, part.text.data() == valid.data(), out);
      }
    }
    if (add_special) out.insert(out.end(), surroundings_.after.begin(), surroundings_.after.end());
    return out;
  }

  std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special) const override {
    return std::make_unique<Decoder>(*this, skip_special);
  }

  int64_t vocabulary_size() const override {
    int64_t size = std::max(model_.num_ids(), added_.num_ids());
    for (const auto* ids : {&surroundings_.before, &surroundings_.after}) {
      for (const int64_t id : *ids) size = std::max(size, id + 1);
    }
    return size;
  }

  std::optional<int64_t> id_of(std::string_view token) const override {
    const auto added = added_.id_of(token);
    return added ? added : model_.id_of(token);
  }

 private:
  class Decoder final : public StreamDecoder {
   public:
    Decoder(const JsonTokenizer& of, bool skip_special)
        : of_(of), skip_special_(skip_special), steps_(of.make_steps_()) {}

    std::string push(int64_t id) override {
      const std::string* added = of_.added_.text_of(id);
      const std::string_view piece = added ? std::string_view(*added) : of_.model_.piece(id);
      std::string out;
      if (!piece.empty() && !(skip_special_ && of_.added_.is_special(id))) run(0, std::string(piece), out);
      return out;
    }

    std::string finish() override {
      std::string out;
      for (size_t i = 0; i < steps_.size(); ++i) {
        steps_[i]->finish([&](std::string piece) { run(i + 1, std::move(piece), out); });
      }
      steps_ = of_.make_steps_();
      return out;
    }

   private:
    void run(size_t step, std::string piece, std::string& out) {
      if (step == steps_.size()) {
        out += piece;
      } else {
        steps_[step]->push(std::move(piece), [&](std::string emitted) { run(step + 1, std::move(emitted), out); });
      }
    }

    const JsonTokenizer& of_;
    const bool skip_special_;
    DecodeSteps steps_;
  };

  // Text between tokens.
  void encode_part(std::string_view text, bool is_at_start, std::vector<int64_t>& out) {
    const std::string normalized = normalizer_->apply(std::string(text));
    for (const TextPart& part : added_.split(normalized, /*is_normalized=*/true)) {
      if (part.token) {
        out.push_back(*part.token);
        continue;
      }
      Words words;
      words.list.push_back({part.text, is_at_start && part.text.data() == normalized.data()});
      pre_tokenizer_->apply(words);
      for (const Word& word : words.list) model_.encode(word.text, out);
    }
  }

  const std::unique_ptr<Normalizer> normalizer_;
  const std::unique_ptr<PreTokenizer> pre_tokenizer_;
  const Surroundings surroundings_;
  const DecodeStepFactory make_steps_;
  BytePairEncoding model_;
  const AddedTokens added_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const JsonNode& root, const std::string& path) {
  const auto model = root["model"];
  if (model.is_null()) root.fail("has no model");
  // Old files have no type. Their models are told apart by what they have.
  const std::string type = model["type"].text(model["merges"].is_null() ? "" : "BPE");
  if (type != "BPE") model.refuse(type.empty() ? "a model without a type" : "the model " + type);
  return std::make_unique<JsonTokenizer>(root, path);
}

}  // namespace dslaunch::runtime::text
