// The nesting of TorchScript sources, out of the tokens of LibTorch's own lexer: what it takes for a string or a
// comment is what its parser takes for one.
#include <torch/csrc/jit/frontend/lexer.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "runtime/state/archive_nesting.hpp"

namespace dslaunch::runtime {
namespace {

using torch::jit::Token;

// An upper bound of the levels at each token: the tokens since the last comma, those of the brackets around it too, and
// the blocks that it is in. a + a + a is a tree of two levels, f(g(x)) one of four. The branches of an if with several
// conditions nest, and so does what follows an early exit of a function or a loop: the compiler moves it into a block.
class Levels {
 public:
  size_t now() const { return tokens_ + blocks_.size() - 1 + conditions_ + exits_; }

  void add(const Token& token) {
    switch (token.kind) {
      case torch::jit::TK_NEWLINE:
        return end_statement();
      case torch::jit::TK_INDENT:
        end_statement();
        return blocks_.push_back(0);
      case torch::jit::TK_DEDENT:
        return end_block();
      default:
        if (std::exchange(begins_statement_, false)) begin_statement(token.kind);
        return add_to_statement(token.kind);
    }
  }

 private:
  struct Bracket {
    size_t item = 0, largest = 0;  // tokens of the present item, and of the largest before it
  };

  void add_to_statement(int kind) {
    switch (kind) {
      case ',':
        return end_item();
      case ')':
      case ']':
      case '}':
        return end_bracket();
      case '(':
      case '[':
      case '{':
        count_token();
        brackets_.emplace_back();
        return;
      case torch::jit::TK_RETURN:
      case torch::jit::TK_BREAK:
      case torch::jit::TK_CONTINUE:
        ++exits_;
        break;
      case torch::jit::TK_ELIF:
        ++conditions_;
        ++blocks_.back();
        break;
      default:
        break;
    }
    count_token();
  }
  void count_token() {
    ++tokens_;
    ++brackets_.back().item;
  }
  void end_item() {
    auto& bracket = brackets_.back();
    tokens_ -= bracket.item;
    bracket.largest = std::max(bracket.largest, bracket.item);
    bracket.item = 0;
  }
  void end_bracket() {
    if (brackets_.size() == 1) return;  // a syntax error, at which the parser stops
    end_item();
    const size_t inside = brackets_.back().largest;
    brackets_.pop_back();
    tokens_ += inside;
    brackets_.back().item += inside;
  }

  void begin_statement(int kind) {
    if (kind == torch::jit::TK_DEF && blocks_.size() <= 2) exits_ = 0;  // of a module or of a class
    if (kind == torch::jit::TK_ELIF || kind == torch::jit::TK_ELSE) return;
    conditions_ -= blocks_.back();
    blocks_.back() = 0;
  }
  void end_statement() {
    begins_statement_ = true;
    tokens_ = 0;
    brackets_.assign(1, {});
  }
  void end_block() {
    end_statement();
    if (blocks_.size() == 1) return;
    conditions_ -= blocks_.back();
    blocks_.pop_back();
  }

  bool begins_statement_ = true;
  size_t tokens_ = 0;
  std::vector<Bracket> brackets_ = std::vector<Bracket>(1);  // the first: outside of all
  std::vector<size_t> blocks_{0};                            // the `elif` of each block's last statement
  size_t conditions_ = 0;                                    // the sum of these
  size_t exits_ = 0;
};

}  // namespace

std::optional<size_t> line_nesting_deeper(const std::string& source, size_t levels) try {
  const auto text = std::make_shared<torch::jit::Source>(source);
  torch::jit::Lexer lexer(text);
  for (Levels found; lexer.cur().kind != torch::jit::TK_EOF;) {
    const Token token = lexer.next();
    found.add(token);
    if (found.now() > levels) return text->lineno_for_offset(token.range.start()) + 1;
  }
  return std::nullopt;
} catch (const std::exception&) {
  return std::nullopt;  // not a token: the parser stops here, too, and says so
}

}  // namespace dslaunch::runtime
