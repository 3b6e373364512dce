#include "runtime/model/fusion/codegen.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

constexpr int kWarp = 32, kMaxThreads = 1024, kElementwiseThreads = 256;
constexpr size_t kMaxCode = 3000;     // statements; more would compile for seconds
constexpr int kMaxKeptBytes = 256;    // of a thread's registers for what it reads of a row
constexpr int kMaxAheadBytes = 64;    // and of the next row
constexpr int kRegisters = 65536;     // of a multiprocessor
constexpr int kWantedBytes = 64;      // that a thread without sums asks for before it computes
constexpr size_t kMaxUnrolled = 400;  // statements that may stand in a kernel several times

std::string indented(const std::string& text, int depth) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    if (text[begin] != '#' && text[begin] != '\n') out.append(static_cast<size_t>(depth) * 2, ' ');
    out.append(text, begin, end - begin + 1);
    begin = end + 1;
  }
  return out;
}

class Generator {
 public:
  Generator(const Region& region, const KernelLayout& layout)
      : region_(region), layout_(layout), levels_(reduction_levels(region)) {
    for (const auto& output : region.outputs) {
      width_ = std::max(width_, region.node(output.value).width);
      sums_rows_ = sums_rows_ || output.rows == Rows::kSum;
    }
    for (size_t i = 0; i < region.nodes.size(); ++i) {
      const auto& node = region.nodes[i];
      if (!is_reduction(node.op)) continue;
      num_levels_ = std::max(num_levels_, levels_[i]);
      width_ = std::max(width_, region.node(node.operands[0]).width);
    }
    share_rows();
  }

  Result<KernelSource> run() {
    for (const auto& input : region_.inputs) {
      if (type_name(input.dtype) == nullptr) return Failure{fmt::format("an input in {}", at::toString(input.dtype))};
    }
    for (const auto& output : region_.outputs) {
      if (type_name(output.dtype) == nullptr)
        return Failure{fmt::format("an output in {}", at::toString(output.dtype))};
    }
    choose_kept();
    std::string rows;
    for (int level = 1; level <= num_levels_; ++level) rows += reduction_phase(level);
    rows += output_phase();
    if (num_statements_ > kMaxCode) return Failure{fmt::format("{} statements", num_statements_)};
    if (!shares_rows()) out_.chunks_per_thread = independent_chunks();
    if (out_.loops_over_rows) out_.blocks_per_multiprocessor = resident_blocks();
    out_.text = text(rows);
    return out_;
  }

 private:
  bool shares_rows() const { return sums_rows_ || num_levels_ > 0; }
  int64_t rounds() const {  // accesses of a thread to a row
    if (!shares_rows()) return 1;
    return (out_.chunks_per_row + out_.threads_per_row - 1) / out_.threads_per_row;
  }

  void share_rows() {
    const int64_t chunks = width_ / layout_.vector;
    out_.chunks_per_row = chunks;
    if (!shares_rows()) {
      out_.threads = kElementwiseThreads;
      out_.threads_per_row = 1;
      return;
    }
    const int64_t most = sums_rows_ ? kWarp : 4 * kWarp;  // accesses to a row for which one warp is enough
    if (chunks <= most) {
      int threads = 1;
      while (threads < kWarp && threads < chunks) threads *= 2;
      out_.threads_per_row = threads;
      out_.threads = 4 * kWarp;
      out_.loops_over_rows = sums_rows_;
      return;
    }
    const int64_t limit = chunks <= 1024 ? 256 : kMaxThreads;
    const int64_t each = (chunks + limit - 1) / limit;
    out_.threads_per_row = static_cast<int>(((chunks + each - 1) / each + kWarp - 1) / kWarp * kWarp);
    out_.threads = out_.threads_per_row;
    out_.loops_over_rows = true;
  }

  const Input& input_of(Id id) const { return region_.inputs[static_cast<size_t>(region_.node(id).index)]; }
  int64_t bytes_of(Id id) const { return layout_.vector * static_cast<int64_t>(c10::elementSize(input_of(id).dtype)); }
  // Whether each row has values of its own.
  bool varies(Id id) const {
    const auto& on = input_of(id).varies;
    return std::find(on.begin(), on.end(), true) != on.end();
  }

  // What a thread reads of a row is asked for at once and stays in registers, as far as it fits. While the threads of a
  // row meet in its sums, the next row is on its way.
  void choose_kept() {
    int64_t left = kMaxKeptBytes, of_rows = 0;
    for (size_t i = 0; i < region_.nodes.size(); ++i) {
      const auto& node = region_.nodes[i];
      const Id id = static_cast<Id>(i);
      if (node.op != Op::kInput || node.width == 1) continue;
      if (shares_rows() && !out_.loops_over_rows && !varies(id)) continue;  // in the cache, and read once
      const int64_t bytes = rounds() * bytes_of(id);
      if (bytes > left) continue;
      left -= bytes;
      kept_.insert(id);
      if (varies(id)) of_rows += bytes;
    }
    reads_ahead_ = out_.loops_over_rows && of_rows > 0 && of_rows <= kMaxAheadBytes;
  }

  // Chunks of a thread without sums.
  int independent_chunks() const {
    if (num_statements_ > kMaxUnrolled) return 1;
    int64_t bytes = 0;
    for (const Id id : kept_) bytes += bytes_of(id);
    int chunks = 1;
    while (chunks < 4 && 2 * chunks * bytes <= kWantedBytes) chunks *= 2;
    return chunks;
  }

  // As many as the registers of a multiprocessor have room for, by estimate; the compiler keeps to it.
  int resident_blocks() const {
    // Long programs have more values at a time.
    int64_t registers = 32 + std::clamp<int64_t>((static_cast<int64_t>(num_statements_) - 100) / 4, 0, 48);
    for (const Id id : kept_) registers += rounds() * bytes_of(id) / 4 * (reads_ahead_ && varies(id) ? 2 : 1);
    for (const auto& output : region_.outputs) {
      const bool is_wide = region_.node(output.value).width > 1;
      if (output.rows == Rows::kSum) registers += is_wide ? rounds() * layout_.vector : 1;
    }
    registers = std::clamp<int64_t>((registers + 7) / 8 * 8, 48, 168);
    return std::max(1, static_cast<int>(kRegisters / registers / out_.threads));
  }

  // --- code of one phase ---

  using ShiftedValue = std::pair<Id, int64_t>;  // a value, read so many columns further on

  void begin_phase() {
    row_code_.clear();
    code_.clear();
    known_.clear();
  }

  void line(const std::string& text) {
    num_statements_ += 1;
    code_ += text + "\n";
  }

  std::string fresh() { return fmt::format("v{}", next_name_++); }

  void each(const std::string& name, const std::string& value) {
    line(fmt::format("float {}[V];", name));
    assign(name, value);
  }
  void assign(const std::string& name, const std::string& value) {
    code_ += "#pragma unroll\n";
    line(fmt::format("for (int e = 0; e < V; ++e) {}[e] = {};", name, value));
  }

  // A value that all columns of a row share: a scalar, computed once a row before the columns.
  std::string narrow(Id id) {
    const Instruction& node = region_.node(id);
    if (node.op == Op::kConstant) return literal(node.number);
    const auto found = scalars_.find(id);
    if (found != scalars_.end()) return found->second;
    std::string value;
    if (node.op == Op::kInput) {
      value = fmt::format("widen(in{}[0])", node.index);
    } else {
      DSL_CHECK(!is_reduction(node.op), "a reduction is computed in its own phase");
      std::vector<std::string> operands;
      for (const Id operand : node.operands) operands.push_back(narrow(operand));
      value = expression(node, operands);
    }
    const auto name = fmt::format("s{}", id);
    num_statements_ += 1;
    row_code_ += fmt::format("const float {} = {};\n", name, value);
    scalars_.emplace(id, name);
    return name;
  }

  // Text that stands for column `e` of the access, as the operand of an expression.
  std::string element(Id id, int64_t shift) {
    return region_.node(id).width == 1 ? narrow(id) : wide(id, shift) + "[e]";
  }

  // The name of an array of the values of columns j + shift and following.
  std::string wide(Id id, int64_t shift) {
    const auto found = known_.find({id, shift});
    if (found != known_.end()) return found->second;
    const Instruction& node = region_.node(id);
    if (num_statements_ > kMaxCode) return "x";  // refused at the end
    std::string name;
    if (node.op == Op::kInput) {
      name = load(id, shift);
    } else if (node.op == Op::kSlice) {
      name = wide(node.operands[0], shift + node.index);
    } else if (node.op == Op::kConcat) {
      name = joined(node, shift);
    } else {
      std::vector<std::string> operands;
      for (const Id operand : node.operands) operands.push_back(element(operand, shift));
      name = fresh();
      each(name, expression(node, operands));
    }
    known_[{id, shift}] = name;
    return name;
  }

  std::string place_of(Id id, const std::string& column) const {
    const int64_t index = region_.node(id).index;
    if (layout_.has_column_stride[static_cast<size_t>(index)]) {
      return fmt::format("in{}[(i64){} * a.column{}]", index, column, index);
    }
    return fmt::format("load<Pack<{}, V>>(in{} + {})", type_name(input_of(id).dtype), index, column);
  }

  std::string load(Id id, int64_t shift) {
    const int64_t index = region_.node(id).index;
    const auto dtype = type_name(region_.inputs[static_cast<size_t>(index)].dtype);
    const auto name = fresh();
    if (kept_.count(id) > 0 && shift == 0 && depth_ == 0) {
      each(name, fmt::format("widen(kept{}[k].at[e])", index));
      return name;
    }
    const bool strided = layout_.has_column_stride[static_cast<size_t>(index)];
    const std::string column = shift == 0 ? "j" : fmt::format("(j + ({}))", shift);
    const std::string place = place_of(id, column);
    if (strided) {
      each(name, fmt::format("widen({})", place));
    } else {
      line(fmt::format("const Pack<{}, V> p{} = {};", dtype, name, place));
      each(name, fmt::format("widen(p{}.at[e])", name));
    }
    return name;
  }

  std::string joined(const Instruction& node, int64_t shift) {
    const auto name = fresh();
    line(fmt::format("float {}[V];", name));
    const auto known = known_;
    int64_t begin = 0;
    depth_ += 1;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const int64_t end = begin + region_.node(node.operands[i]).width;
      const bool is_last = i + 1 == node.operands.size();
      std::string head = i == 0 ? "" : "} else ";
      if (!is_last) head += fmt::format("if (j + ({}) < {}) ", shift, end);
      code_ += head + "{\n";
      assign(name, element(node.operands[i], shift - begin));
      known_ = known;  // what a branch has computed exists only there
      begin = end;
    }
    code_ += "}\n";
    depth_ -= 1;
    return name;
  }

  // The body runs for each access of this thread to its row.
  std::string over_columns(const std::string& body, int64_t width) const {
    const bool is_whole = rounds() * out_.threads_per_row * layout_.vector == width;
    std::string head =
        "#pragma unroll\nfor (int k = 0; k < ROUNDS; ++k) {\n  const int j = (k * PER_ROW + lane) * V;\n";
    if (rounds() == 1) head = "{\n  constexpr int k = 0;\n  const int j = lane * V;\n";
    if (!is_whole) head += fmt::format("  if (j < {}) {{\n", width);
    return head + indented(body, is_whole ? 1 : 2) + (is_whole ? "}\n" : "  }\n}\n");
  }

  std::string reduction_phase(int level) {
    begin_phase();
    std::string before, loops;
    std::vector<Id> all;
    std::map<int64_t, std::vector<Id>> by_width;
    for (size_t i = 0; i < region_.nodes.size(); ++i) {
      const auto& node = region_.nodes[i];
      if (is_reduction(node.op) && levels_[i] == level) {
        by_width[region_.node(node.operands[0]).width].push_back(static_cast<Id>(i));
        all.push_back(static_cast<Id>(i));
      }
    }
    for (const auto& [width, reductions] : by_width) {
      code_.clear();
      known_.clear();
      for (const Id id : reductions) {
        const Instruction& node = region_.node(id);
        const bool is_sum = node.op == Op::kRowSum;
        const auto name = fmt::format("s{}", id);
        const auto value = element(node.operands[0], 0);
        code_ += "#pragma unroll\n";
        line(is_sum ? fmt::format("for (int e = 0; e < V; ++e) {} += {};", name, value)
                    : fmt::format("for (int e = 0; e < V; ++e) {} = larger({}, {});", name, name, value));
        before += fmt::format("float {} = {};\n", name, is_sum ? "0.0f" : "__int_as_float(0xff800000)");
        scalars_.emplace(id, name);
      }
      loops += over_columns(code_, width);
    }
    return row_code_ + before + loops + over_row(all);
  }

  // The sums and maxima of all threads of a row, in each of them. Warps exchange theirs in shared memory, where each
  // has a place of its own. With one level of reductions a further row has to wait until all have read those of the row
  // before; with several, the other levels see to that.
  std::string over_row(const std::vector<Id>& reductions) {
    std::string in_warps, stored, read;
    for (const Id id : reductions) {
      const bool is_sum = region_.node(id).op == Op::kRowSum;
      const char* operation = is_sum ? "add" : "larger";
      in_warps += fmt::format("s{} = in_warp_{}<(PER_ROW < 32 ? PER_ROW : 32)>(s{});\n", id, operation, id);
      if (out_.threads_per_row <= kWarp) continue;
      const int place = num_exchanged_++;
      stored += fmt::format("  of_warp[{}][threadIdx.x / 32] = s{};\n", place, id);
      read += fmt::format(
          "s{} = in_warp_{}<WARPS>(threadIdx.x % WARPS < PER_ROW / 32 ? of_warp[{}][threadIdx.x % WARPS] : {});\n", id,
          operation, place, is_sum ? "0.0f" : "__int_as_float(0xff800000)");
    }
    if (stored.empty()) return in_warps;
    const char* wait = num_levels_ == 1 ? "__syncthreads();\n" : "";
    return in_warps + wait + "if (threadIdx.x % 32 == 0) {\n" + stored + "}\n__syncthreads();\n" + read;
  }

  std::string output_phase() {
    begin_phase();
    std::map<int64_t, std::vector<size_t>> by_width;
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      by_width[region_.node(region_.outputs[i].value).width].push_back(i);
    }
    std::string loops, single;
    for (const auto& [width, outputs] : by_width) {
      code_.clear();
      known_.clear();
      for (const size_t i : outputs) width == 1 ? write_narrow(i, single) : write_wide(i);
      if (width > 1) loops += shares_rows() ? over_columns(code_, width) : guarded(code_, width);
    }
    if (!single.empty()) single = "if (live && lane == 0) {\n" + indented(single, 1) + "}\n";
    return row_code_ + loops + single;
  }

  std::string guarded(const std::string& body, int64_t width) const {
    return width == width_ ? "{\n" + indented(body, 1) + "}\n"
                           : fmt::format("if (j < {}) {{\n", width) + indented(body, 1) + "}\n";
  }

  void write_narrow(size_t i, std::string& code) {
    const auto& output = region_.outputs[i];
    const auto value = narrow(output.value);
    if (output.rows == Rows::kSum) {
      row_sums_ += fmt::format("if (live && lane == 0) sum{}[0][0] += {};\n", i, value);
    } else {
      code += fmt::format("narrow({}, out{}[0]);\n", value, i);
    }
  }

  void write_wide(size_t i) {
    const auto& output = region_.outputs[i];
    const auto value = element(output.value, 0);
    if (output.rows == Rows::kSum) {
      code_ += "#pragma unroll\n";
      line(fmt::format("for (int e = 0; e < V; ++e) sum{}[k][e] += live ? {} : 0.0f;", i, value));
      return;
    }
    const auto dtype = type_name(output.dtype);
    line(fmt::format("Pack<{}, V> to{};", dtype, i));
    code_ += "#pragma unroll\n";
    line(fmt::format("for (int e = 0; e < V; ++e) narrow({}, to{}.at[e]);", value, i));
    line(fmt::format("if (live) store(to{}, out{} + j);", i, i));
    if (!notes(i)) return;
    code_ += "#pragma unroll\n";
    line(fmt::format("for (int e = 0; e < V; ++e) most{0} = max(most{0}, to{0}.at[e].bits & 0x7fffu);", i));
  }

  // --- the whole kernel ---

  // A row that is not live has the values of another row, so that it does not matter.
  bool notes(size_t i) const { return layout_.notes_maxima && has_maximum(region_, region_.outputs[i]); }

  std::vector<size_t> noted() const {
    std::vector<size_t> out;
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      if (notes(i)) out.push_back(i);
    }
    return out;
  }

  std::string declared_maxima() const {
    std::string out;
    for (const size_t i : noted()) out += fmt::format("  unsigned most{} = 0u;\n", i);
    return out;
  }

  // By whole warps: no thread returns earlier.
  std::string noted_maxima() const {
    std::string out;
    for (const size_t i : noted()) out += fmt::format("  note(most{}, a.maximum{});\n", i, i);
    return out;
  }

  std::string arguments() const {
    std::string out = "struct Arguments {\n  i64 rows;\n  i64 size[DIMS];\n";
    for (size_t i = 0; i < region_.inputs.size(); ++i) {
      out += fmt::format("  const {}* in{};\n  i64 in_stride{}[DIMS];\n  i64 column{};\n",
                         type_name(region_.inputs[i].dtype), i, i, i);
    }
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      const bool is_sum = region_.outputs[i].rows == Rows::kSum;
      out += fmt::format("  {}* out{};\n  i64 out_stride{}[DIMS];\n",
                         is_sum ? "float" : type_name(region_.outputs[i].dtype), i, i);
    }
    for (const size_t i : noted()) out += fmt::format("  unsigned* maximum{};\n", i);
    return out + "};\n";
  }

  // The position of `row` in the merged dims.
  std::string row_position() const {
    if (layout_.num_dims == 1) return "";
    std::string out = "unsigned left = row;\n";
    for (int d = layout_.num_dims - 1; d > 0; --d) {
      out += fmt::format("const unsigned i{} = left % (unsigned)a.size[{}];\nleft /= (unsigned)a.size[{}];\n", d, d, d);
    }
    return out;
  }
  std::string position(int d) const {
    if (d > 0) return fmt::format("i{}", d);
    return layout_.num_dims > 1 ? "left" : "row";
  }

  std::string input_pointer(size_t i) const {
    std::string out = fmt::format("const {}* const in{} = a.in{} + awaited", type_name(region_.inputs[i].dtype), i, i);
    for (int d = 0; d < layout_.num_dims; ++d) {
      if (region_.inputs[i].varies[static_cast<size_t>(d)]) {
        out += fmt::format(" + (i64){} * a.in_stride{}[{}]", position(d), i, d);
      }
    }
    return out + ";\n";
  }

  std::string row_pointers() const {
    std::string out = row_position();
    for (size_t i = 0; i < region_.inputs.size(); ++i) out += input_pointer(i);
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      if (region_.outputs[i].rows == Rows::kSum) continue;
      out += fmt::format("{}* const out{} = a.out{}", type_name(region_.outputs[i].dtype), i, i);
      for (int d = 0; d < layout_.num_dims; ++d) {
        out += fmt::format(" + (i64){} * a.out_stride{}[{}]", position(d), i, d);
      }
      out += ";\n";
    }
    return out;
  }

  // Loads inputs that are kept into the arrays of this name, for the row that the expression says.
  std::string fetch(const char* into, const std::string& row, const std::vector<Id>& inputs) const {
    std::string out = fmt::format("const unsigned row = {};\n(void)row;\n", row) + row_position();
    std::map<int64_t, std::string> by_width;
    for (const Id id : inputs) {
      const auto index = region_.node(id).index;
      out += input_pointer(static_cast<size_t>(index));
      by_width[region_.node(id).width] += load_of(id, into) + "\n";
    }
    for (const auto& [width, body] : by_width) out += over_columns(body, width);
    return "{\n" + indented(out, 1) + "}\n";
  }

  // Of access `k`, at column `j`.
  std::string load_of(Id id, const char* into) const {
    const auto index = region_.node(id).index;
    const bool strided = layout_.has_column_stride[static_cast<size_t>(index)];
    return fmt::format("{}{}[k]{} = {};", into, index, strided ? ".at[0]" : "", place_of(id, "j"));
  }

  std::string declared(const char* name, const std::vector<Id>& inputs) const {
    std::string out;
    for (const Id id : inputs) {
      out += fmt::format("Pack<{}, V> {}{}[ROUNDS];\n", type_name(input_of(id).dtype), name, region_.node(id).index);
    }
    return out;
  }

  bool is_fast() const {
    return std::all_of(region_.outputs.begin(), region_.outputs.end(),
                       [](const Output& output) { return output.dtype == at::kBFloat16; });
  }

  std::string text(const std::string& rows) const {
    std::string out = device_functions(is_fast());
    out += fmt::format("constexpr int V = {}, DIMS = {}, PER_ROW = {}, ROUNDS = {};\n", layout_.vector,
                       layout_.num_dims, out_.threads_per_row, rounds());
    if (!noted().empty()) out += note_function();
    out += arguments();
    out += fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}{}) {}(const __grid_constant__ Arguments a) {{\n",
        out_.threads, out_.loops_over_rows ? fmt::format(", {}", out_.blocks_per_multiprocessor) : std::string(),
        kKernelName);
    out += "  const i64 awaited = await_earlier_kernels();\n";
    out += declared_maxima();
    if (!shares_rows()) return out + chunk_by_chunk(rows) + noted_maxima() + "}\n";
    const int groups = out_.rows_per_block();
    if (num_exchanged_ > 0) {
      int warps = 1;
      while (warps < out_.threads_per_row / kWarp) warps *= 2;
      out += fmt::format("  constexpr int WARPS = {};\n  __shared__ float of_warp[{}][PER_ROW / 32];\n", warps,
                         num_exchanged_);
    }
    out += groups == 1 ? "  const int lane = threadIdx.x, group = 0;\n"
                       : "  const int lane = threadIdx.x % PER_ROW, group = threadIdx.x / PER_ROW;\n";
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      if (region_.outputs[i].rows == Rows::kSum) out += fmt::format("  float sum{}[ROUNDS][V] = {{}};\n", i);
    }
    std::vector<Id> of_rows, of_all_rows;
    for (const Id id : kept_) (varies(id) || !out_.loops_over_rows ? of_rows : of_all_rows).push_back(id);
    out += indented(declared("kept", of_all_rows), 1);
    if (!of_all_rows.empty()) out += indented(fetch("kept", "0", of_all_rows), 1);
    const auto row_from = [&](const std::string& first) {
      return groups == 1 ? first : fmt::format("{} + group < a.rows ? {} + group : {}", first, first, first);
    };
    if (reads_ahead_) {
      out += indented(declared("next", of_rows), 1);
      out += indented(fetch("next", row_from(fmt::format("blockIdx.x * {}u", groups)), of_rows), 1);
    }
    // All threads of a block take part in each round, since they meet in the reductions.
    out += fmt::format("  for (unsigned first = blockIdx.x * {}u; first < a.rows; first += gridDim.x * {}u) {{\n",
                       groups, groups);
    out += "    const bool live = first + group < a.rows;\n    const unsigned row = live ? first + group : first;\n";
    std::string body = declared("kept", of_rows);
    if (reads_ahead_) {
      body += "#pragma unroll\nfor (int k = 0; k < ROUNDS; ++k) {\n";
      for (const Id id : of_rows) body += fmt::format("  kept{0}[k] = next{0}[k];\n", region_.node(id).index);
      body += fmt::format("}}\nconst unsigned further = first + gridDim.x * {}u;\nif (further < a.rows) ", groups);
      body += fetch("next", row_from("further"), of_rows);
    } else if (!of_rows.empty()) {
      body += fetch("kept", "live ? first + group : first", of_rows);
    }
    out += indented(body + row_pointers() + rows + row_sums_, 2) + "  }\n";
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      if (region_.outputs[i].rows == Rows::kSum) out += indented(partial_sums(i, groups), 1);
    }
    return out + noted_maxima() + "}\n";
  }

  // Without sums: each thread loads a few chunks at once, and computes them one after the other.
  std::string chunk_by_chunk(const std::string& rows) const {
    const int each = out_.chunks_per_thread;
    const std::string head =
        fmt::format("#pragma unroll\nfor (int k = 0; k < {}; ++k) {{\n", each) +
        fmt::format("  const unsigned thread = (blockIdx.x * {}u + k) * {}u + threadIdx.x;\n", each, out_.threads) +
        fmt::format("  const bool live = thread / {0}u < a.rows;\n  const unsigned row = live ? thread / {0}u : 0u;\n",
                    out_.chunks_per_row) +
        fmt::format("  const int j = (int)(thread % {}u) * V, lane = j;\n  (void)lane;\n", out_.chunks_per_row);
    std::string out, loads;
    for (const Id id : kept_) {
      const auto& node = region_.node(id);
      out += fmt::format("Pack<{}, V> kept{}[{}];\n", type_name(input_of(id).dtype), node.index, each);
      loads += input_pointer(static_cast<size_t>(node.index));
      if (node.width < width_) loads += fmt::format("if (j < {}) ", node.width);
      loads += load_of(id, "kept") + "\n";
    }
    if (!loads.empty()) out += head + indented(row_position() + loads, 1) + "}\n";
    return indented(out + head + indented(row_pointers() + rows, 1) + "}\n", 1);
  }

  std::string partial_sums(size_t i, int groups) const {
    const int64_t width = region_.node(region_.outputs[i].value).width;
    const auto row = fmt::format("a.out{} + (i64)(blockIdx.x * {} + group) * {}", i, groups, width);
    if (width == 1) return fmt::format("if (lane == 0) *({}) = sum{}[0][0];\n", row, i);
    return over_columns(
        fmt::format("Pack<float, V> total;\n#pragma unroll\nfor (int e = 0; e < V; ++e) total.at[e] = sum{}[k][e];\n"
                    "store(total, {} + j);\n",
                    i, row),
        width);
  }

  const Region& region_;
  const KernelLayout& layout_;
  const std::vector<int> levels_;
  KernelSource out_;
  int64_t width_ = 1;
  int num_levels_ = 0;
  bool sums_rows_ = false;
  std::set<Id> kept_;         // inputs
  bool reads_ahead_ = false;  // the next row's
  // of the phase
  std::string row_code_, code_, row_sums_;
  std::map<ShiftedValue, std::string> known_;
  int depth_ = 0;  // of branches
  // of the kernel
  std::map<Id, std::string> scalars_;
  int next_name_ = 0, num_exchanged_ = 0;
  size_t num_statements_ = 0;
};

}  // namespace

bool has_maximum(const Region& region, const Output& output) {
  return output.dtype == at::kBFloat16 && output.rows == Rows::kKeep && region.node(output.value).width > 1;
}

int largest_vector(const Region& region) {
  int64_t common = 8;
  const auto include = [&](int64_t columns) { common = std::gcd(common, columns); };
  for (const auto& node : region.nodes) {
    if (node.width > 1) include(node.width);
    if (node.op == Op::kSlice) include(node.index);
  }
  const auto is_narrow = [](at::ScalarType type) { return c10::elementSize(type) == 2; };
  const bool any_narrow =
      std::any_of(region.inputs.begin(), region.inputs.end(), [&](const Input& one) { return is_narrow(one.dtype); }) ||
      std::any_of(region.outputs.begin(), region.outputs.end(),
                  [&](const Output& one) { return is_narrow(one.dtype); });
  if (!any_narrow) common = std::gcd(common, 4);
  // Nothing but values that all columns share.
  const bool any_wide =
      std::any_of(region.nodes.begin(), region.nodes.end(), [](const Instruction& one) { return one.width > 1; });
  return any_wide ? static_cast<int>(common) : 1;
}

Result<KernelSource> kernel_source(const Region& region, const KernelLayout& layout) {
  return Generator(region, layout).run();
}

}  // namespace dslaunch::runtime::model::fusion
