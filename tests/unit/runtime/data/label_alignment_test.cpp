#include "runtime/data/label_alignment.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "runtime/data/batch_assembly.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

// Samples of "input_ids" (uint16) and "labels" (int64), all of one length.
class TokenRows : public SampleSource {
 public:
  using Rows = std::vector<std::vector<int64_t>>;
  TokenRows(Rows ids, Rows labels) : ids_(std::move(ids)), labels_(std::move(labels)) {
    const auto length = static_cast<int64_t>(ids_[0].size());
    arrays_ = {{"input_ids", at::kUInt16, {length}}, {"labels", at::kLong, {length}}};
  }
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return is_endless ? kEndless : static_cast<int64_t>(ids_.size()); }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t array, int64_t sample, void* out) const override {
    const auto& row = (array == 0 ? ids_ : labels_)[static_cast<size_t>(sample) % ids_.size()];
    for (size_t i = 0; i < row.size(); ++i) {
      if (array == 0) static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(row[i]);
      if (array == 1) static_cast<int64_t*>(out)[i] = row[i];
    }
  }
  bool is_endless = false;

 private:
  Rows ids_, labels_;
  std::vector<ArrayInfo> arrays_;
};

LabelAlignment alignment_of(TokenRows::Rows ids, TokenRows::Rows labels) {
  return find_label_alignment(std::make_shared<TokenRows>(std::move(ids), std::move(labels)), 0, 1);
}

}  // namespace

TEST_CASE("labels that are the tokens differ from those that are the next tokens", "[runtime][data]") {
  CHECK(alignment_of({{1, 2, 3}, {4, 5, 60000}}, {{1, 2, 3}, {4, 5, 60000}}) == LabelAlignment::kSame);
  CHECK(alignment_of({{1, 2, 3}, {4, 5, 60000}}, {{2, 3, 4}, {5, 60000, 7}}) == LabelAlignment::kNext);
  CHECK(alignment_of({{1, 2, 3}}, {{9, 8, 7}}) == LabelAlignment::kUnknown);
  CHECK(alignment_of({{1, 2, 3}, {1, 2, 3}}, {{1, 2, 3}, {2, 3, 4}}) == LabelAlignment::kUnknown);
}

TEST_CASE("labels that say nothing leave the alignment open", "[runtime][data]") {
  CHECK(alignment_of({{5, 5, 5}}, {{5, 5, 5}}) == LabelAlignment::kUnknown);  // both
  CHECK(alignment_of({{1, 2, 3}}, {{-100, -100, -100}}) == LabelAlignment::kUnknown);
  CHECK(alignment_of({{1, 2, 3, 0}}, {{-100, 3, -100, -100}}) == LabelAlignment::kNext);
  CHECK(alignment_of({{1, 2, 3, 0}}, {{-100, 2, 3, -100}}) == LabelAlignment::kSame);
  CHECK(alignment_of({{7}}, {{7}}) == LabelAlignment::kUnknown);
  auto generated = std::make_shared<TokenRows>(TokenRows::Rows{{1, 2, 3}}, TokenRows::Rows{{1, 2, 3}});
  generated->is_endless = true;
  CHECK(find_label_alignment(generated, 0, 1) == LabelAlignment::kUnknown);
}

TEST_CASE("the first label of a sample is not counted for a model that shifts them", "[runtime][data]") {
  const auto source =
      std::make_shared<TokenRows>(TokenRows::Rows{{1, 2, 3}, {4, 5, 6}}, TokenRows::Rows{{1, 2, -100}, {-100, 5, 6}});
  MicroBatchPlan plan;
  plan.samples = {0, 1};
  plan.num_samples = 2;
  AssemblyOptions options;
  CHECK(BatchAssembler(source, {{0}, {1}}, options).assemble(plan).num_labels == 4);
  options.ignores_first_label = true;
  CHECK(BatchAssembler(source, {{0}, {1}}, options).assemble(plan).num_labels == 3);
}
