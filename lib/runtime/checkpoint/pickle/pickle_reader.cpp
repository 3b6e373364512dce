// Long on purpose: one case per opcode, in the order of Python's pickletools. Left out are the opcodes of protocols 0
// and 1: torch.save writes protocol 2 unless it is told otherwise, and torch.load(weights_only=True) refuses the older.
#include "runtime/checkpoint/pickle/pickle_reader.hpp"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::pickle {
namespace {

// Named as in pickletools.
namespace op {
enum : uint8_t {
  kProto = 0x80,
  kFrame = 0x95,
  kMark = '(',
  kPop = '0',
  kPopMark = '1',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kEmptySet = 0x8f,
  kTuple = 't',
  kFrozenSet = 0x91,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kAppend = 'a',
  kAppends = 'e',
  kAddItems = 0x90,
  kSetItem = 's',
  kSetItems = 'u',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kBuild = 'b',
  kBinPersId = 'Q',
  kStop = '.',
};
}  // namespace op

constexpr size_t kMaxNameBytes = 4096;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (auto candidate : names) {
    if (name == candidate) return true;
  }
  return false;
}

// UTF-8 of the characters 0 to 255 back to bytes: what codecs.encode(text, "latin1") makes.
std::optional<std::string> latin1_bytes(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
    } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size()) {
      bytes += static_cast<char>((byte & 3) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace

class Machine {
 public:
  Machine(std::span<const uint8_t> bytes, const std::string& subject, const Limits& limits)
      : bytes_(bytes), subject_(subject), limits_(limits), document_(std::make_unique<Document>()) {}

  std::unique_ptr<const Document> run() {
    if (bytes_.size() > limits_.max_bytes) {
      refuse(fmt::format("is a pickle of {} bytes; at most {} are read", bytes_.size(), limits_.max_bytes));
    }
    while (true) {
      opcode_at_ = at_;
      const uint8_t opcode = take(1)[0];
      if (opcode == op::kStop) break;
      execute(opcode);
    }
    document_->root_ = pop();
    return std::move(document_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(ExitCode::kBadInput, fmt::format("{}: {} (byte {} of the pickle)", subject_, what, opcode_at_));
  }
  [[noreturn]] void damaged(const std::string& what) const { refuse("its pickle is damaged: " + what); }

  // --- bytes ---
  const uint8_t* take(uint64_t size) {
    if (size > bytes_.size() - at_) damaged("it ends too early");
    const uint8_t* start = bytes_.data() + at_;
    at_ += size;
    return start;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof value);
    return value;
  }
  std::string text(uint64_t size) {
    const auto* start = reinterpret_cast<const char*>(take(size));
    return {start, size};
  }
  std::string line() {
    const auto* start = reinterpret_cast<const char*>(bytes_.data()) + at_;
    const void* end = std::memchr(start, '\n', bytes_.size() - at_);
    if (!end) damaged("a line without its end");
    std::string out(start, static_cast<const char*>(end));
    at_ += out.size() + 1;
    return out;
  }

  // --- values and the stack ---
  Value* make(Kind kind) {
    if (document_->values_.size() >= limits_.max_values) {
      refuse(fmt::format("its pickle holds more than {} values", limits_.max_values));
    }
    Value& value = document_->values_.emplace_back();
    value.kind = kind;
    return &value;
  }
  void push(Value* value) { stack_.push_back(value); }
  void push_text(Kind kind, std::string text) {
    Value* value = make(kind);
    value->text = std::move(text);
    push(value);
  }
  void push_integer(int64_t integer) {
    Value* value = make(Kind::kInteger);
    value->integer = integer;
    push(value);
  }
  void push_float(double number) {
    Value* value = make(Kind::kFloat);
    value->number = number;
    push(value);
  }
  void push_bool(bool boolean) {
    Value* value = make(Kind::kBool);
    value->boolean = boolean;
    push(value);
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Value* pop() {
    if (stack_.size() <= floor()) damaged("the stack is empty");
    Value* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Value* top() {
    if (stack_.size() <= floor()) damaged("the stack is empty");
    return stack_.back();
  }
  void mark() {
    if (marks_.size() >= limits_.max_marks) refuse(fmt::format("nests deeper than {} levels", limits_.max_marks));
    marks_.push_back(stack_.size());
  }
  std::vector<const Value*> pop_to_mark() {
    if (marks_.empty()) damaged("there is no mark");
    std::vector<const Value*> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  void push_items(Kind kind, std::vector<const Value*> items) {
    Value* value = make(kind);
    value->items = std::move(items);
    push(value);
  }
  void push_tuple_of(size_t count) {
    std::vector<const Value*> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = pop();
    push_items(Kind::kTuple, std::move(items));
  }

  // --- containers ---
  void append(Value* target, const std::vector<const Value*>& items) {
    if (!target->is(Kind::kList) && !target->is(Kind::kSet) && !target->is(Kind::kObject)) {
      damaged("an item is appended to a value that is not a list");
    }
    target->items.insert(target->items.end(), items.begin(), items.end());
  }
  void set_entries(Value* target, const std::vector<const Value*>& pairs) {
    if (pairs.size() % 2 != 0) damaged("a key without a value");
    if (!target->is(Kind::kDict) && !target->is(Kind::kObject))
      damaged("an entry is set in a value that is not a dict");
    for (size_t i = 0; i < pairs.size(); i += 2) target->entries.emplace_back(pairs[i], pairs[i + 1]);
  }

  // Copying (not moving) could make a small pickle large: a long list that is wrapped again and again.
  void count_copies(size_t num) {
    num_copied_ += num;
    if (num_copied_ > limits_.max_values) refuse("its pickle repeats its parts too often");
  }
  void push_copy(Kind kind, const std::vector<const Value*>& items) {
    count_copies(items.size());
    push_items(kind, items);
  }

  // --- objects ---
  void push_global(std::string module, const std::string& name) {
    if (module.size() + name.size() > kMaxNameBytes) damaged("a class with an endless name");
    // Protocols below 3 write Python 2's names.
    if (module == "__builtin__") module = "builtins";
    push_text(Kind::kGlobal, module + "." + name);
  }
  // Containers that wrap plain data become that data; everything else stays a record.
  void push_call(const Value* callable, const Value* arguments) {
    if (callable->is(Kind::kGlobal) && arguments->is(Kind::kTuple) && push_unwrapped(callable->text, arguments->items))
      return;
    Value* object = make(Kind::kObject);
    object->callable = callable;
    object->arguments = arguments;
    push(object);
  }
  bool push_unwrapped(const std::string& name, const std::vector<const Value*>& arguments) {
    const bool is_dict = is_one_of(name, {"collections.OrderedDict", "builtins.dict"}) && arguments.empty();
    if (is_dict || name == "collections.defaultdict") {
      push(make(Kind::kDict));
      return true;
    }
    const bool has_items = arguments.size() == 1 && (arguments[0]->is(Kind::kList) || arguments[0]->is(Kind::kTuple));
    if (is_one_of(name, {"builtins.set", "builtins.frozenset"}) && (has_items || arguments.empty())) {
      push_copy(Kind::kSet, has_items ? arguments[0]->items : std::vector<const Value*>());
      return true;
    }
    if (is_one_of(name, {"torch.Size", "builtins.tuple"}) && has_items) {
      push_copy(Kind::kTuple, arguments[0]->items);
      return true;
    }
    if (name == "builtins.list" && has_items) {
      push_copy(Kind::kList, arguments[0]->items);
      return true;
    }
    if (name == "_codecs.encode" && !arguments.empty() && arguments[0]->is(Kind::kText)) {
      count_copies(arguments[0]->text.size() / 8);
      auto bytes = latin1_bytes(arguments[0]->text);
      if (bytes) push_text(Kind::kBytes, std::move(*bytes));
      return bytes.has_value();
    }
    return false;
  }
  void build() {
    const Value* state = pop();
    Value* target = top();
    // Attributes of unwrapped objects (an OrderedDict's _metadata) are ignored.
    if (target->is(Kind::kObject)) target->state = state;
  }
  void push_persistent(const Value* id) {
    Value* value = make(Kind::kPersistent);
    value->arguments = id;
    push(value);
  }
  // --- the memo ---
  void remember(uint64_t index) { memo_[index] = top(); }
  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) damaged(fmt::format("it refers to value {}, which there is not", index));
    push(found->second);
  }
  // --- wide numbers ---
  // Two's complement, little endian.
  void push_wide(uint64_t size) {
    const uint8_t* bytes = take(size);
    const bool negative = size > 0 && (bytes[size - 1] & 0x80) != 0;
    if (size <= 8) {
      uint64_t value = negative ? ~uint64_t{0} : 0;
      for (uint64_t i = 0; i < size; ++i) {
        value = (value & ~(uint64_t{0xff} << (8 * i))) | uint64_t{bytes[i]} << (8 * i);
      }
      return push_integer(static_cast<int64_t>(value));
    }
    double value = negative ? -1 : 0;
    for (uint64_t i = size; i > 0; --i) value = value * 256 + bytes[i - 1];
    push_float(value);
  }
  double big_endian_double() {
    uint64_t bits = 0;
    const uint8_t* bytes = take(8);
    for (int i = 0; i < 8; ++i) bits = bits << 8 | bytes[i];
    return std::bit_cast<double>(bits);
  }

  void execute(uint8_t opcode) {
    switch (opcode) {
      case op::kProto:
        if (const int protocol = take(1)[0]; protocol < 2 || protocol > 5)
          refuse(fmt::format("is a pickle of protocol {}; 2 to 5 are read", protocol));
        return;
      case op::kFrame:
        return void(take(8));
      case op::kMark:
        return mark();
      case op::kPop:  // takes a mark when nothing is above it
        if (!marks_.empty() && stack_.size() == marks_.back()) return marks_.pop_back();
        return void(pop());
      case op::kPopMark:
        return void(pop_to_mark());
      case op::kNone:
        return push(make(Kind::kNone));
      case op::kNewTrue:
        return push_bool(true);
      case op::kNewFalse:
        return push_bool(false);
      case op::kBinInt:
        return push_integer(number<int32_t>());
      case op::kBinInt1:
        return push_integer(number<uint8_t>());
      case op::kBinInt2:
        return push_integer(number<uint16_t>());
      case op::kLong1:
        return push_wide(number<uint8_t>());
      case op::kLong4: {
        const auto size = number<int32_t>();
        if (size < 0) damaged("a negative size");
        return push_wide(static_cast<uint64_t>(size));
      }
      case op::kBinFloat:
        return push_float(big_endian_double());
      case op::kBinUnicode:
        return push_text(Kind::kText, text(number<uint32_t>()));
      case op::kShortBinUnicode:
        return push_text(Kind::kText, text(number<uint8_t>()));
      case op::kBinUnicode8:
        return push_text(Kind::kText, text(number<uint64_t>()));
      case op::kBinBytes:
        return push_text(Kind::kBytes, text(number<uint32_t>()));
      case op::kShortBinBytes:
        return push_text(Kind::kBytes, text(number<uint8_t>()));
      case op::kBinBytes8:
      case op::kByteArray8:
        return push_text(Kind::kBytes, text(number<uint64_t>()));
      case op::kEmptyList:
        return push(make(Kind::kList));
      case op::kEmptyTuple:
        return push(make(Kind::kTuple));
      case op::kEmptyDict:
        return push(make(Kind::kDict));
      case op::kEmptySet:
        return push(make(Kind::kSet));
      case op::kTuple:
        return push_items(Kind::kTuple, pop_to_mark());
      case op::kFrozenSet:
        return push_items(Kind::kSet, pop_to_mark());
      case op::kTuple1:
      case op::kTuple2:
      case op::kTuple3:
        return push_tuple_of(opcode - op::kTuple1 + 1U);
      case op::kAppend: {
        const Value* item = pop();
        return append(top(), {item});
      }
      case op::kAppends:
      case op::kAddItems: {
        const auto items = pop_to_mark();
        return append(top(), items);
      }
      case op::kSetItem: {
        const Value* value = pop();
        const Value* key = pop();
        return set_entries(top(), {key, value});
      }
      case op::kSetItems: {
        const auto pairs = pop_to_mark();
        return set_entries(top(), pairs);
      }
      case op::kBinPut:
        return remember(number<uint8_t>());
      case op::kLongBinPut:
        return remember(number<uint32_t>());
      case op::kMemoize:
        return remember(memo_.size());
      case op::kBinGet:
        return recall(number<uint8_t>());
      case op::kLongBinGet:
        return recall(number<uint32_t>());
      case op::kGlobal: {
        std::string module = line();
        return push_global(std::move(module), line());
      }
      case op::kStackGlobal: {
        const Value* name = pop();
        const Value* module = pop();
        if (!name->is(Kind::kText) || !module->is(Kind::kText)) damaged("a global without a name");
        return push_global(module->text, name->text);
      }
      case op::kReduce:
      case op::kNewObj: {
        const Value* arguments = pop();
        return push_call(pop(), arguments);
      }
      case op::kNewObjEx: {  // keyword arguments are kept as the object's entries
        const Value* keywords = pop();
        const Value* arguments = pop();
        push_call(pop(), arguments);
        if (top()->is(Kind::kObject)) top()->entries = keywords->entries;
        return;
      }
      case op::kBuild:
        return build();
      case op::kBinPersId:
        return push_persistent(pop());
      default:
        refuse(fmt::format("its pickle is damaged, of protocol 0 or 1, or holds what is not data: opcode 0x{:02x}",
                           opcode));
    }
  }

  const std::span<const uint8_t> bytes_;
  const std::string& subject_;
  const Limits limits_;
  std::unique_ptr<Document> document_;
  size_t at_ = 0, opcode_at_ = 0, num_copied_ = 0;
  std::vector<Value*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Value*> memo_;
};

std::unique_ptr<const Document> read_pickle(std::span<const uint8_t> bytes, const std::string& subject,
                                            const Limits& limits) {
  return Machine(bytes, subject, limits).run();
}

}  // namespace dslaunch::runtime::pickle
