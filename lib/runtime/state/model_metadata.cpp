#include "runtime/state/model_metadata.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_depth.hpp"
#include "base/model_archive.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kMaxLevels = 64;

std::vector<ZipMember> members_of(const MappedFile& file) {
  try {
    return read_zip_members({file.data(), file.size()}, file.path());
  } catch (const UserError&) {
    return {};
  }
}

std::string text_of(const ZipMember& member, const std::string& path) {
  if (!member.deflated) return {reinterpret_cast<const char*>(member.bytes.data()), member.bytes.size()};
  const auto bytes = inflate_member(member, path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<std::string> find_record(const std::string& path) {
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path, "model");
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::string ending = std::string("/extra/") + kModelMetadataName;
  for (const auto& member : members_of(*file)) {
    if (member.name.ends_with(ending)) return text_of(member, path);
  }
  return std::nullopt;
}

// Members of another type than expected count as damage.
class Record {
 public:
  Record(const std::string& text, const std::string& path) : path_(path) {
    if (!nests_deeper(text, kMaxLevels)) json_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object() || !json_.contains("format") || !json_["format"].is_number_integer()) refuse();
    if (json_["format"].get<int64_t>() == kFormat) return;
    refuse_model(path_,
                 fmt::format("has metadata of format {}, and this dslaunch reads format {}: a later tools/export "
                             "wrote it",
                             json_["format"].get<int64_t>(), kFormat));
  }

  // Empty if absent.
  std::string word(const char* key, std::initializer_list<const char*> known) const {
    if (!json_.contains(key)) return {};
    for (const char* each : known) {
      if (json_[key] == each) return each;
    }
    refuse();
  }

  std::optional<std::vector<std::string>> words(const char* key) const {
    if (!json_.contains(key)) return std::nullopt;
    std::vector<std::string> out;
    if (!json_[key].is_array()) refuse();
    for (const auto& each : json_[key]) {
      if (!each.is_string()) refuse();
      out.push_back(each.get<std::string>());
    }
    return out;
  }

  std::vector<RecordedInput> inputs() const {
    std::vector<RecordedInput> out;
    if (!json_.contains("inputs")) return out;
    if (!json_["inputs"].is_array()) refuse();
    for (const auto& input : json_["inputs"]) {
      const auto has = [&](const char* key, bool (Json::*is_type)() const) {
        return input.is_object() && input.contains(key) && (input[key].*is_type)();
      };
      if (!has("name", &Json::is_string) || !has("dtype", &Json::is_string) || !has("shape", &Json::is_array)) refuse();
      for (const auto& size : input["shape"]) {
        if (!size.is_number_integer()) refuse();
      }
      out.push_back({input["name"], input["dtype"], input["shape"].get<std::vector<int64_t>>()});
    }
    return out;
  }

 private:
  [[noreturn]] void refuse() const {
    refuse_model(path_, fmt::format("has damaged metadata (the record extra/{})", kModelMetadataName));
  }

  const std::string& path_;
  Json json_;
};

}  // namespace

ModelMetadata read_model_metadata(const std::string& path) {
  ModelMetadata out;
  auto text = find_record(path);
  if (!text) return out;
  const Record record(*text, path);
  const auto labels = record.word("labels", {"next", "same"});
  if (labels == "next") out.labels = LabelConvention::kNext;
  if (labels == "same") out.labels = LabelConvention::kSame;
  out.averages_over_labels = record.word("loss_average", {"tokens"}) == "tokens";
  if (auto units = record.words("recompute")) {
    out.recomputes = true;
    out.recomputed_units = *std::move(units);
  }
  out.inputs = record.inputs();
  out.text = *std::move(text);
  return out;
}

}  // namespace dslaunch::runtime
