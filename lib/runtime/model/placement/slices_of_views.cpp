#include "runtime/model/placement/slices_of_views.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/placement/operation.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Node;
using torch::jit::Value;
using torch::jit::WithInsertPoint;

struct Part {
  int64_t begin = 0, end = 0;
};

class Slicing {
 public:
  Slicing(graph::FlatGraph& flat, KnownValues& known) : flat_(flat), known_(known), graph_(*flat.graph) {}

  void run() {
    std::vector<Node*> views, full;
    const graph::Aliases aliases(flat_);
    for (Node* node : graph_.nodes()) {
      if (node->outputs().size() != 1 || aliases.is_written(node->output())) continue;
      if (is_view_of_last_dim(node)) views.push_back(node);
      if (is_full_slice(node)) full.push_back(node);
    }
    for (Node* slice : full) {
      slice->output()->replaceAllUsesWith(slice->input(0));
      destroy(slice);
    }
    for (Node* view : views) cut(view);
  }

 private:
  // x[:], whatever the size.
  bool is_full_slice(const Node* node) const {
    return node->kind() == c10::aten::slice && known_.sizes(node->output()) &&
           number(node->input(2)).value_or(0) == 0 && number(node->input(4)) == 1 &&
           number(node->input(3)).value_or(std::numeric_limits<int64_t>::max()) == std::numeric_limits<int64_t>::max();
  }

  bool is_view_of_last_dim(const Node* node) const {
    const std::string_view kind = node->kind().toQualString();
    if (kind != "aten::view" && kind != "aten::reshape" && kind != "aten::_unsafe_view") return false;
    const auto in = known_.sizes(node->input(0)), out = known_.sizes(node->output());
    if (!in || !out || in->empty() || out->size() < in->size() + 1 ||
        node->input(1)->node()->kind() != c10::prim::ListConstruct) {
      return false;
    }
    const auto last = static_cast<std::ptrdiff_t>(in->size()) - 1;
    const int64_t joined = std::accumulate(out->begin() + last, out->end(), int64_t{1}, std::multiplies<>());
    return joined == in->back() && std::equal(in->begin(), in->begin() + last, out->begin());
  }

  std::optional<int64_t> number(const Value* value) const {
    const c10::IValue* found = known_.find(value);
    return found != nullptr && found->isInt() ? std::optional(found->toInt()) : std::nullopt;
  }

  // What a reader takes of dim `dim`, whose size is `size`.
  std::optional<Part> part_of(const Node* reader, int64_t dim, int64_t size) const {
    if (reader->kind() == c10::aten::index) return single_index(reader, dim, size);
    if (reader->kind() != c10::aten::slice) return std::nullopt;
    const auto at = number(reader->input(1)), step = number(reader->input(4));
    const size_t dims = known_.sizes(reader->input(0))->size();
    if (!at || wrapped(*at, dims) != dim || step != 1) return std::nullopt;
    const auto clamped = [size](int64_t index) {
      return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
    };
    const int64_t begin = clamped(number(reader->input(2)).value_or(0));
    const int64_t end = clamped(number(reader->input(3)).value_or(size));
    return begin < end && end - begin < size ? std::optional(Part{begin, end}) : std::nullopt;
  }

  std::optional<Part> single_index(const Node* reader, int64_t dim, int64_t size) const {
    const c10::IValue* indices = known_.find(reader->input(1));
    if (indices == nullptr || !indices->isList()) return std::nullopt;
    std::optional<int64_t> index;
    int64_t at = 0;
    for (const c10::IValue& element : indices->toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) {
        const at::Tensor tensor = element.toTensor();
        if (at != dim || tensor.is_meta() || tensor.dim() != 1 || tensor.numel() != 1) return std::nullopt;
        index = tensor.item<int64_t>();
      }
      ++at;
    }
    if (!index) return std::nullopt;
    const int64_t begin = *index < 0 ? *index + size : *index;
    return Part{begin, begin + 1};
  }

  // Where all that reads the view takes a part of its first new dim.
  void cut(Node* view) {
    const auto dim = static_cast<int64_t>(known_.sizes(view->input(0))->size()) - 1;
    const int64_t size = known_.sizes(view->output())->at(static_cast<size_t>(dim));
    std::vector<std::pair<Node*, Part>> parts;
    for (const auto& use : view->output()->uses()) {
      const auto part = use.offset == 0 && use.user->owningBlock() == view->owningBlock() ? part_of(use.user, dim, size)
                                                                                          : std::nullopt;
      if (!part) return;
      parts.emplace_back(use.user, *part);
    }
    for (const auto& [reader, part] : parts) replace(view, reader, part, dim);
    destroy(view);
  }

  void replace(Node* view, Node* reader, const Part& part, int64_t dim) {
    const WithInsertPoint before(reader);
    const auto in = *known_.sizes(view->input(0)), out = *known_.sizes(view->output());
    const int64_t width = in.back() / out.at(static_cast<size_t>(dim));
    Value* flat = graph_.insert(c10::aten::slice, {view->input(0), constant(dim), constant(part.begin * width),
                                                   constant(part.end * width), constant(int64_t{1})});
    auto sizes_of_part = in;
    sizes_of_part.back() = (part.end - part.begin) * width;
    know(flat, meta_tensor(sizes_of_part, known_.find(view->input(0))->toTensor().scalar_type()), reader);
    std::vector<Value*> elements = view->input(1)->node()->inputs().vec();
    elements.at(static_cast<size_t>(dim)) = constant(part.end - part.begin);
    Value* sizes = graph_.insertNode(graph_.createList(c10::IntType::get(), elements))->output();
    c10::List<int64_t> numbers;
    for (const Value* element : elements) numbers.push_back(*number(element));
    know(sizes, numbers, reader);
    Value* viewed = graph_.insert(c10::aten::reshape, {flat, sizes});
    know(viewed, *known_.find(reader->output()), reader);
    viewed->node()->setSourceRange(reader->sourceRange());
    reader->output()->replaceAllUsesWith(viewed);
    destroy(reader);
  }

  Value* constant(int64_t number) {
    Value* out = graph_.insertConstant(number);
    known_.values.insert_or_assign(out, number);
    return out;
  }

  // The new node is of the call that `like` is of.
  void know(const Value* value, c10::IValue known, const Node* like) {
    known_.values.insert_or_assign(value, std::move(known));
    if (const auto call = flat_.call_of.find(like); call != flat_.call_of.end()) {
      flat_.call_of.insert_or_assign(value->node(), call->second);
    }
  }

  void destroy(Node* node) {
    for (const Value* output : node->outputs()) known_.values.erase(output);
    flat_.call_of.erase(node);
    node->destroy();
  }

  graph::FlatGraph& flat_;
  KnownValues& known_;
  torch::jit::Graph& graph_;
};

}  // namespace

void slice_before_views(graph::FlatGraph& flat, KnownValues& known) {
  Slicing(flat, known).run();
}

}  // namespace dslaunch::runtime::model::placement
