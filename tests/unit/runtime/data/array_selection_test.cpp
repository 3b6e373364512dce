#include "runtime/data/array_selection.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;

namespace {

std::vector<ArrayInfo> arrays_of(const std::vector<std::string>& names) {
  std::vector<ArrayInfo> arrays;
  for (const auto& name : names) arrays.push_back({name, at::kLong, {4}});
  return arrays;
}

using Names = std::vector<std::string>;
struct Chosen {
  Names inputs, labels;
  bool operator==(const Chosen&) const = default;
};

Chosen choose(const Names& arrays, const Names& inputs, const Names& labels, const ForwardArguments& forward) {
  const auto selection = select_arrays(arrays_of(arrays), inputs, labels, forward);
  Chosen chosen;
  for (size_t i : selection.inputs) chosen.inputs.push_back(arrays[i]);
  for (size_t i : selection.labels) chosen.labels.push_back(arrays[i]);
  return chosen;
}

const ForwardArguments kTwo{{"a", "b"}, 2, true};

}  // namespace

TEST_CASE("by default all arrays go to forward, labels last", "[runtime][data][array_selection]") {
  CHECK(choose({"y", "x"}, {}, {}, kTwo) == Chosen{{"x"}, {"y"}});
  CHECK(choose({"labels", "ids", "mask"}, {}, {}, {{"p", "ids", "r"}, 3, true}) == Chosen{{"mask", "ids"}, {"labels"}});
  CHECK(choose({"labels", "tokens"}, {}, {}, {{"labels", "ids"}, 2, true}) == Chosen{{"labels", "tokens"}, {}});
}

TEST_CASE("arrays whose order is not known are refused with the options to write", "[runtime][data][array_selection]") {
  expect_error(ExitCode::kBadInput,
               {"which array of the data is which argument of forward is not known: forward takes (input_ids, labels), "
                "and the data has 'targets' Long[4], 'tokens' Long[4]; name the arrays in forward's order: --inputs "
                "tokens --labels targets or --inputs targets --labels tokens (data.inputs and data.labels"},
               [&] {
                 choose({"targets", "tokens"}, {}, {}, {{"input_ids", "labels"}, 2, true});
               });
  expect_error(ExitCode::kBadInput, {"order: --inputs x,z or --inputs z,x ("}, [&] {
    choose({"x", "z"}, {}, {}, kTwo);
  });
  expect_error(ExitCode::kBadInput, {"for example --inputs p,q --labels target ("}, [&] {
    choose({"target", "p", "q"}, {}, {}, {{"a", "b", "label"}, 3, true});
  });
  expect_error(ExitCode::kBadInput, {"--inputs p,q or --inputs q,p ("}, [&] {
    choose({"p", "q", "target"}, {}, {"target"}, {{"a", "b", "c"}, 3, true});
  });
  expect_error(ExitCode::kBadInput, {"--inputs p,q or --inputs q,p ("}, [&] {
    choose({"p", "q", "label"}, {}, {}, {{"a", "b"}, 2, false});
  });
}

TEST_CASE("types and dims may leave one order of the arrays", "[runtime][data][array_selection]") {
  const std::vector<ArrayInfo> arrays{{"a", at::kLong, {}}, {"b", at::kFloat, {6}}, {"c", at::kFloat, {6, 6}}};
  const auto order = [&](std::vector<ArgumentForm> forms, std::vector<std::string> names = {"p", "q", "r"}) {
    return select_arrays(arrays, {}, {}, {std::move(names), 3, true, std::move(forms)}).inputs;
  };
  CHECK(order({{true, 3}, {}, {false, {}}}) == std::vector<size_t>{2, 1, 0});
  CHECK(order({{true, 2}, {false, 1}}) == std::vector<size_t>{1, 0, 2});
  CHECK(order({{}, {}, {false, {}}}, {"p", "b", "r"}) == std::vector<size_t>{2, 1, 0});  // one by its name
  CHECK_THROWS_AS(order({{}, {false, {}}}), UserError);                                  // p and r may be either
  CHECK_THROWS_AS(order({{false, {}}, {false, {}}}), UserError);                         // none fits
}

TEST_CASE("arrays called like forward's arguments are taken in forward's order", "[runtime][data][array_selection]") {
  const ForwardArguments gpt{{"input_ids", "labels"}, 2, true};
  CHECK(choose({"attention_mask", "labels", "input_ids"}, {}, {}, gpt) == Chosen{{"input_ids"}, {"labels"}});
  const ForwardArguments optional{{"x", "mask", "labels"}, 1, true};
  CHECK(choose({"mask", "x"}, {}, {}, optional) == Chosen{{"x", "mask"}, {}});
  // Arguments are passed by position: without a mask nothing after it can be given by name.
  CHECK(choose({"x"}, {}, {}, optional) == Chosen{{"x"}, {}});
  CHECK(choose({"b", "a"}, {}, {}, kTwo) == Chosen{{"a", "b"}, {}});
}

TEST_CASE("an array called like an argument behind a gap is not left out", "[runtime][data][array_selection]") {
  const ForwardArguments bert{{"ids", "mask", "labels"}, 1, true};
  for (const auto& labels : {std::vector<std::string>{}, {"labels"}}) {  // these would be taken for the mask
    expect_error(ExitCode::kBadInput, {"array 'labels'", "(ids, mask, labels)", "'mask' before it has no array"}, [&] {
      choose({"ids", "labels"}, {}, labels, bert);
    });
  }
  expect_error(ExitCode::kBadInput, {"array 'labels'", "'mask' before it has no array"}, [&] {
    choose({"ids", "labels"}, {"ids"}, {}, bert);
  });
  CHECK(choose({"ids", "labels"}, {"ids"}, {"labels"}, bert) == Chosen{{"ids"}, {"labels"}});  // asked for
  const ForwardArguments with_loss{{"ids", "mask", "labels"}, 1, false};
  CHECK(choose({"ids", "labels"}, {}, {}, with_loss) == Chosen{{"ids"}, {"labels"}});
}

TEST_CASE("the config's names win", "[runtime][data][array_selection]") {
  CHECK(choose({"p", "q", "r"}, {"r"}, {"p"}, kTwo) == Chosen{{"r"}, {"p"}});
  CHECK(choose({"p", "q", "labels"}, {"q"}, {}, kTwo) == Chosen{{"q"}, {"labels"}});
  CHECK(choose({"p", "target"}, {}, {"target"}, kTwo) == Chosen{{"p"}, {"target"}});
}

TEST_CASE("labels that nobody asked for are left out when forward takes one array",
          "[runtime][data][array_selection]") {
  CHECK(choose({"x", "labels"}, {}, {}, {{"input"}, 1, true}) == Chosen{{"x"}, {}});
}

TEST_CASE("a loss of its own takes the labels", "[runtime][data][array_selection]") {
  const ForwardArguments classify{{"image"}, 1, false};
  CHECK(choose({"image", "label"}, {}, {}, classify) == Chosen{{"image"}, {"label"}});
  CHECK(choose({"pixels", "label"}, {}, {}, classify) == Chosen{{"pixels"}, {"label"}});
  expect_error(ExitCode::kBadInput, {"\"loss\" needs labels", "--labels"},
               [&] { choose({"image"}, {}, {}, classify); });
}

TEST_CASE("what does not fit forward is told with both sides", "[runtime][data][array_selection]") {
  expect_error(ExitCode::kBadInput,
               {"forward takes 2 argument(s) (a, b)", "but the data provides 3 (x, z, y)", "--inputs"}, [&] {
                 choose({"x", "z", "y"}, {}, {}, kTwo);
               });
  expect_error(ExitCode::kBadInput, {"but the data provides 1 (x)"}, [&] { choose({"x"}, {}, {}, kTwo); });
  expect_error(ExitCode::kBadInput, {"labels go to forward unless a loss takes them: --loss cross_entropy"}, [&] {
    choose({"x", "z", "y"}, {"x", "z"}, {"y"}, kTwo);
  });
  expect_error(ExitCode::kBadInput, {"takes 1 to 2 argument(s)"}, [&] {
    choose({"x", "z", "w"}, {}, {}, {{"a", "b"}, 1, true});
  });
  expect_error(ExitCode::kBadInput, {"data.inputs", "'input_id'", "did you mean 'input_ids'?"}, [&] {
    choose({"input_ids", "labels"}, {"input_id"}, {}, kTwo);
  });
  expect_error(ExitCode::kBadInput, {"data.labels", "'z'"}, [&] { choose({"x"}, {}, {"z"}, kTwo); });
}

TEST_CASE("of many arrays five are named, once", "[runtime][data][array_selection]") {
  Names many;
  for (int i = 0; i < 2000; ++i) many.push_back("array" + std::to_string(i));
  const std::string first = "array0, array1, array2, array3, array4 and 1995 more";
  const auto answer_to = [&](const Names& inputs, const Names& labels, const ForwardArguments& forward) {
    try {
      choose(many, inputs, labels, forward);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const auto& text : {answer_to({}, {}, kTwo), answer_to({"x"}, {}, kTwo), answer_to({"array7"}, {}, kTwo),
                           answer_to({"array7"}, {}, {{"a"}, 1, false})}) {
    CAPTURE(text);
    CHECK(text.size() < 400);
    CHECK(text.find(first) != text.npos);
    CHECK(text.find(first) == text.rfind(first));
  }
}
