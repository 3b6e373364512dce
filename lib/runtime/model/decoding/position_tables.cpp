#include "runtime/model/decoding/position_tables.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using Counts = PositionTables::Counts;

constexpr Counts kFew{5, 6}, kMoreTokens{7, 6}, kMoreEncoded{5, 9};

}  // namespace

Result<> PositionTables::find_dims(bool has_encoder, std::set<std::string>& counted) {
  try {
    if (auto same = compare(kFew, kMoreTokens, /*of_encoder=*/false, counted); !same.ok()) return same;
    if (has_encoder) {
      if (auto same = compare(kFew, kMoreEncoded, /*of_encoder=*/true, counted); !same.ok()) return same;
    }
  } catch (const std::exception&) {
    return Failure{fmt::format("its values of positions cannot be computed for {} of them", kMoreTokens.tokens)};
  }
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (auto fits = check_use(i, values_[i].dim()); !fits.ok()) return fits;
  }
  find_alike();
  return {};
}

Result<> PositionTables::compare(const Counts& fewer, const Counts& more, bool of_encoder,
                                 std::set<std::string>& counted) {
  values_ = evaluate_(fewer);
  counts_ = fewer;
  const auto larger = evaluate_(more);
  const int64_t few = of_encoder ? fewer.encoded : fewer.tokens, many = of_encoder ? more.encoded : more.tokens;
  for (size_t i = 0; i < values_.size(); ++i) {
    at::Tensor part = larger[i];
    auto& dims = of_encoder ? dims_[i].encoded : dims_[i].tokens;
    for (int64_t dim = 0; dim < part.dim(); ++dim) {
      if (values_[i].size(dim) == part.size(dim)) continue;
      if (values_[i].size(dim) != few || part.size(dim) != many) {
        counted.insert(uses_[i].name);
        break;
      }
      dims.push_back(dim);
      part = part.narrow(dim, 0, few);
    }
    if (counted.count(uses_[i].name) > 0) continue;
    if (!at::allclose(part.to(at::kDouble), values_[i].to(at::kDouble), 1e-5, 1e-6, /*equal_nan=*/true)) {
      return Failure{fmt::format("{} reads a value of the first positions that depends on the length of the text",
                                 uses_[i].reader)};
    }
  }
  return {};
}

Result<> PositionTables::check_use(size_t table, int64_t dim) const {
  const auto& [tokens, encoded] = dims_[table];
  const auto& [use, reader, name] = uses_[table];
  const auto is_among = [dim](const std::vector<int64_t>& dims, std::initializer_list<int64_t> allowed) {
    return std::all_of(dims.begin(), dims.end(), [&](int64_t own) {
      return std::find(allowed.begin(), allowed.end(), own - dim) != allowed.end();
    });
  };
  const bool fits = use == TableUse::kMask ? is_among(tokens, {-2, -1}) && is_among(encoded, {-1})
                                           : tokens.size() <= 1 && encoded.empty();
  if (fits) return {};
  return Failure{fmt::format("{} reads a value with a row and a column for each position", reader)};
}

void PositionTables::ensure(const Counts& counts) {
  if (counts.tokens <= counts_.tokens && counts.encoded <= counts_.encoded && !values_.empty()) return;
  const int64_t step = growth_.step;
  const auto rounded = [step](int64_t needed, int64_t have) {
    return needed <= have ? have : std::max((needed + step - 1) / step * step, 2 * have);
  };
  const Counts needed{std::max(counts.tokens, counts_.tokens), std::max(counts.encoded, counts_.encoded)};
  Counts ample{rounded(counts.tokens, counts_.tokens), rounded(counts.encoded, counts_.encoded)};
  if (growth_.most > 0) {  // on a GPU a table that is read behind its end ends the process's work there
    if (needed.tokens > growth_.most) {
      throw std::runtime_error(fmt::format("{} positions, of which the model has {}", needed.tokens, growth_.most));
    }
    ample.tokens = std::min(ample.tokens, growth_.most);
  }
  for (;;) {
    try {
      values_ = evaluate_(ample);
      break;
    } catch (const std::exception&) {  // more than the model has positions
      if (ample.tokens == needed.tokens && ample.encoded == needed.encoded) throw;
      ample = {std::max(ample.tokens / 2, needed.tokens), std::max(ample.encoded / 2, needed.encoded)};
    }
  }
  counts_ = ample;
  layout_ += 1;
  find_alike();
}

void PositionTables::find_alike() {
  alike_.clear();
  for (size_t i = 0; i < values_.size(); ++i) {
    size_t first = 0;
    while (first < i &&
           !(alike_[first] == first && uses_[first].use == uses_[i].use && dims_[first].tokens == dims_[i].tokens &&
             values_[first].options().type_equal(values_[i].options()) && at::equal(values_[first], values_[i]))) {
      ++first;
    }
    alike_.push_back(first);
  }
}

std::vector<at::Tensor> PositionTables::rows(const at::Tensor& positions) const {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (alike_[i] < i) {
      out.push_back(out[alike_[i]]);
      continue;
    }
    const auto& dims = dims_[i].tokens;
    const bool is_mask = uses_[i].use == TableUse::kMask;
    const int64_t row_dim = is_mask ? values_[i].dim() - 2 : dims.empty() ? -1 : dims.front();
    const bool has_rows = std::find(dims.begin(), dims.end(), row_dim) != dims.end();
    out.push_back(has_rows ? values_[i].index_select(row_dim, positions) : values_[i]);
  }
  return out;
}

}  // namespace dslaunch::runtime::model::decoding
