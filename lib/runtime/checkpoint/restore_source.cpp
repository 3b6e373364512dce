#include "runtime/checkpoint/restore_source.hpp"

#include "runtime/checkpoint/checkpoint_paths.hpp"

namespace dslaunch::runtime {

void RestoreSource::read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out,
                              const std::optional<Slice>& slice) {
  try {
    if (is_remote(parameter, state, {slice, begin, begin + out.numel()})) {
      out.zero_();
    } else {
      reader_.read_into(parameter, state, begin, out, slice);
    }
  } catch (const UserError& error) {
    record_error(error);
    out.zero_();
  }
}

// Whether at least a part lies on other hosts; that part is then recorded as needed.
bool RestoreSource::is_remote(const std::string& parameter, const std::string& state, const SliceRange& range) {
  if (is_fetched_ || reader_.is_complete()) return false;
  const auto missing = reader_.missing(parameter, state, range);
  if (missing) findings_.needs.pieces.push_back(*missing);
  return missing.has_value();
}

std::optional<std::string> RestoreSource::rng_state(int rank, const comm::Mesh& mesh) {
  const auto saved_rank = rank_with_random_state(reader_.metadata(), reader_.world_size(), mesh, rank);
  if (!saved_rank) return std::nullopt;
  if (!reader_.has_shard(shard_name(*saved_rank)) && !is_fetched_) findings_.needs.rng_of = *saved_rank;
  try {
    return reader_.rng_state(*saved_rank);
  } catch (const UserError& error) {
    record_error(error);
    return std::nullopt;
  }
}

void RestoreSource::record_error(const UserError& error) {
  if (findings_.outcome.ok()) findings_.outcome = Failure{error.what()};
  findings_.has_damage |= dynamic_cast<const DamagedCheckpoint*>(&error) != nullptr;
}

}  // namespace dslaunch::runtime
