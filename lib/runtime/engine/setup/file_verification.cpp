#include "runtime/engine/setup/file_verification.hpp"

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

// Largest first, each to the rank that has the fewest bytes so far; the same on all ranks.
std::vector<const ZipMember*> records_of(const std::vector<ZipMember>& all, const VerificationShare& share) {
  std::vector<const ZipMember*> sorted;
  for (const auto& member : all) sorted.push_back(&member);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->size > b->size; });
  std::vector<uint64_t> bytes(static_cast<size_t>(share.count));
  std::vector<const ZipMember*> own;
  for (const auto* member : sorted) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    *least += member->size;
    if (least - bytes.begin() == share.index) own.push_back(member);
  }
  return own;
}

}  // namespace

FileVerification::FileVerification(std::vector<std::string> paths, const VerificationShare& share)
    : damages_(std::async(std::launch::async, [paths = std::move(paths), share] { return verify(paths, share); })) {}

std::vector<FileVerification::Damage> FileVerification::verify(const std::vector<std::string>& paths,
                                                               const VerificationShare& share) {
  std::vector<Damage> out;
  for (const auto& path : paths) {
    try {
      const auto file = MappedFile::open(path, "model");
      const auto members = read_zip_members({file->data(), file->size()}, path);
      if (!has_checksums(members) && share.index == 0) {
        log::debug("'{}' has no checksums (torch.serialization.set_crc32_options): damage to it would not be noticed",
                   path);
      }
      if (!has_checksums(members)) continue;
      for (const auto* record : records_of(members, share)) {
        if (!matches_crc(*record)) out.push_back({path, record->name});
      }
    } catch (const Error&) {  // what reads the file says it better
    }
  }
  return out;
}

void FileVerification::finish() {
  if (!damages_.valid()) return;
  const auto damages = damages_.get();
  if (damages.empty()) return;
  const Damage& first = damages.front();
  const std::string parameter = model::file::tensor_in_record(first.path, first.record);
  const size_t others = damages.size() - 1;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("'{}' is damaged: the checksum of its record '{}'{}{} does not match; copy or save the "
                  "file again",
                  first.path, first.record, parameter.empty() ? "" : fmt::format(" (tensor '{}')", parameter),
                  others == 0 ? "" : fmt::format(", and of {} more,", others)));
}

std::vector<std::string> files_to_verify(const std::string& model_path, const config::JobConfig& config) {
  std::vector<std::string> out{model_path};
  if (!config.loss.empty() && !config::is_own_loss(config.loss)) out.push_back(config.loss);
  for (const auto& metric : config.train.metrics) {
    if (!metric.module.empty()) out.push_back(metric.module);
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::setup
