// SPDX-License-Identifier: Apache-2.0
/// What YAML readers let pass and decks do not: duplicate keys, anchors, odd numbers and booleans, bombs, broken bytes.
#include <algorithm>
#include <clocale>
#include <limits>
#include <random>

#include "deck_helpers.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/numbers.hpp"

using namespace llmtrain;

TEST_CASE("duplicate keys name both lines") {
  CHECK(deck_error("optimizer:\n  lr: 0.1\n  eps: 1e-8\n  \"lr\": 0.2\n") ==
        "deck.yaml:4:3: duplicate key 'lr'; it is first set in line 2");
  CHECK(contains(deck_error("run: {}\nmodel: {}\nrun: {}\n"),
                 "deck.yaml:3:1: duplicate key 'run'; it is first set in line 1"));
  CHECK(contains(deck_error("{}", {"run={steps: 1, steps: 2}"}), "duplicate key 'steps'"));
}

TEST_CASE("anchors, aliases, tags, merge keys and second documents are errors") {
  CHECK(contains(deck_error("run: &a {steps: 30}\n"), "deck.yaml:1:6: anchors"));
  CHECK(contains(deck_error("run: {name: &a x, dir: *a}\n"), "anchors"));
  CHECK(contains(deck_error("run: *a\n"), "deck.yaml:1:6"));
  for (const std::string tag : {"!2", "!!int 30", "! 30", "!!float 30", "! '30'", "! {}"}) {
    CAPTURE(tag);
    CHECK(contains(deck_error("run:\n  steps: " + tag + "\n"), "deck.yaml:2:10: tags"));
  }
  CHECK(contains(deck_error("run:\n  <<: {steps: 30}\n"), "unknown key '<<'"));
  CHECK(contains(deck_error("run: {}\n---\nrun: {}\n"), "deck.yaml:2:1: something follows the end"));
  CHECK(contains(deck_error("{}\n{}\n"), "deck.yaml:2:1"));
  CHECK(deck_error("---\nrun: {}\n...\n").empty());
  CHECK_FALSE(deck_error("%YAML 9\n---\nrun: {}\n").empty());
  for (const std::string junk : {"!",       "&",        "*",
                                 "*x",      "|",        ">",
                                 "?",       ":",        "-",
                                 "@",       "`",        "%",
                                 "[",       "{",        "]",
                                 "}",       "'",        "\"",
                                 "? [",     "run: [",   "run: {steps: 1",
                                 "run: 'x", "[a]: {}",  "? {a: 1}\n: 2",
                                 "run:x",   "- a\n- b", "5"}) {
    CAPTURE(junk);
    CHECK_FALSE(deck_error(junk).empty());
  }
}

TEST_CASE("whole numbers") {
  for (const std::string good : {"30", "+30", "3e1", "3E1", "30.0", "300e-1", "3.0e+1"}) {
    CAPTURE(good);
    CHECK(parse_deck("run: {steps: " + good + "}", "d").run.steps == 30);
  }
  for (const std::string bad : {"030",
                                "0x1e",
                                "0o36",
                                "0b11",
                                "1.5",
                                "3e-1",
                                "1_000",
                                "1,000",
                                "'30'",
                                "\"30\"",
                                ".nan",
                                ".inf",
                                "-.inf",
                                "NaN",
                                "true",
                                "~",
                                "null",
                                "",
                                "[30]",
                                "{a: 30}",
                                "3 0",
                                "1e400",
                                "99999999999999999999",
                                "9223372036854775808",
                                "-1",
                                "1e10",
                                "thirty",
                                "30steps",
                                "1:30",
                                "-",
                                "e5",
                                "."}) {
    CAPTURE(bad);
    const std::string message = deck_error("run:\n  steps: " + bad + "\n");
    CHECK(message.starts_with("deck.yaml:2:"));
    CHECK(std::count(message.begin(), message.end(), '\n') == 0);
  }
  CHECK(parse_deck("run: {seed: 9223372036854775807}", "d").run.seed == 9223372036854775807);
  CHECK(contains(deck_error("run: {seed: 9223372036854775808}"), "does not fit in 64 bits"));
  CHECK(parse_integer("-9223372036854775808").value == std::numeric_limits<std::int64_t>::min());
  CHECK(parse_integer("0e999999").value == 0);
  CHECK(contains(deck_error("run: {steps: \"30\"}"), "in quotes is text; write it without"));
  CHECK(contains(deck_error("run: {threads: 4294967297}"), "out of range"));
}

TEST_CASE("real numbers do not depend on the locale") {
  for (const std::string bad : {".nan", ".inf", "nan", "inf", "-inf", "0x1p3", "1e999", "1e-999", "0,5", "'0.5'",
                                "1.2.3", "00.5", "1e", "--1", "1e5.0", "0.5f"}) {
    CAPTURE(bad);
    CHECK(contains(deck_error("optimizer: {schedule: constant, lr: " + bad + "}"), "deck.yaml:1:"));
  }
  CHECK(contains(deck_error("optimizer: {lr: .nan}"), "is not a finite number"));
  for (const char* locale : {"de_DE.UTF-8", "fr_FR.UTF-8", "C"}) {
    std::setlocale(LC_ALL, locale);  // where the locale is not installed this changes nothing
    const Deck deck = parse_deck("optimizer: {lr: 3.5e-4, eps: .5, betas: [0.5, 0.25]}", "d");
    CHECK(deck.optimizer.lr == 3.5e-4);
    CHECK(deck.optimizer.eps == 0.5);
    CHECK(contains(to_yaml(deck), "betas: [0.5, 0.25]"));
  }
}

TEST_CASE("booleans, texts, lists and maps are what they are written as") {
  for (const std::string bad : {"yes", "no", "on", "off", "True", "FALSE", "1", "0", "'true'", "y", "~"}) {
    CAPTURE(bad);
    CHECK(contains(deck_error("model: {tied: " + bad + "}"), "model.tied: "));
  }
  CHECK(parse_deck("run: {name: no}", "d").run.name == "no");
  CHECK(contains(to_yaml(parse_deck("run: {name: no}", "d")), "name: \"no\"\n"));
  CHECK(parse_deck("run: {name: 0x10}", "d").run.name == "0x10");
  CHECK(contains(deck_error("run: {name: ~}"), "has no value"));
  CHECK(contains(deck_error("run: {name: ''}"), "is empty"));
  CHECK(contains(deck_error("run: {name: \"a\\0b\"}"), "control character"));
  CHECK(contains(deck_error("run: {dir: [a]}"), "a list stands here"));
  CHECK(contains(deck_error("data: {train: corpus}"), "write [corpus]"));
  CHECK(contains(deck_error("data: {train: [{weight: 1}]}"), "has no prefix"));
  CHECK(contains(deck_error("data: {train: [{prefix: a, weight: 0}]}"), "is not more than 0"));
  CHECK(contains(deck_error("run: 5"), "run: a single value stands here; it takes a map of keys"));
  CHECK(contains(deck_error("run:\n"), "run: an empty value stands here"));
  CHECK(contains(deck_error("optimizer: {betas: [0.9]}"), "the list has 1 items"));
  CHECK(contains(deck_error("optimizer: {betas: [0.9, 1]}"), "'1' is out of range"));
  CHECK(contains(deck_error("optimizer: {betas: [0.9, ]}"), "the list has 1 items"));
  CHECK(contains(deck_error("schedule: {recompute_modules: [norm, norm]}"), "'norm' appears twice"));
  CHECK(deck_error("model: {rope: {scaling: {}}}").empty());
  CHECK(contains(deck_error("run: {max_walltime: 1:60:00}"), "is neither seconds nor H:MM:SS"));
  CHECK(parse_deck("run:\n  max_walltime: 100:00:09\n", "d").run.max_walltime == 360009);
}

TEST_CASE("bytes: marks and line ends are fine, tabs, control characters and bad UTF-8 are not") {
  CHECK(parse_deck("\xEF\xBB\xBFrun:\r\n  steps: 30\r\n  name: x\r\n", "d").run.name == "x");
  CHECK(contains(deck_error("\xEF\xBB\xBFrun:\r\n  stepz: 30\r\n"), "deck.yaml:2:3: unknown key 'stepz'"));
  CHECK(contains(deck_error("run:\n\tsteps: 30\n"), "deck.yaml:2:1: a tab is used as indentation"));
  CHECK(contains(deck_error("run: {steps: 30}\n\x04garbage: ["), "control character 0x04"));
  CHECK(contains(deck_error(std::string("run: {}\0", 8)), "control character 0x00"));
  CHECK(contains(deck_error("run: {name: \xff}"), "deck.yaml:1:13: byte 0xff is not valid UTF-8"));
  CHECK(contains(deck_error("run: {name: \xc0\xaf}"), "not valid UTF-8"));
  CHECK(contains(deck_error("run: {}\rmodel: {}"), "carriage return"));
  CHECK(contains(deck_error("\xff\xfe{"), "not valid UTF-8"));
  for (const std::string empty : {"", "\n\n", "# only a comment\n", "---\n", "\xEF\xBB\xBF"}) {
    CHECK(contains(deck_error(empty), "the deck is empty"));
  }
  CHECK(deck_error("{}").empty());
}

TEST_CASE("size, depth and node limits") {
  CHECK(contains(deck_error(std::string(1 << 20, ' ') + "x"), "larger than 1 MiB"));
  CHECK(contains(deck_error("run: " + std::string(5000, '[')), "nested deeper than 64"));
  CHECK_FALSE(deck_error("run: " + std::string(300000, '{')).empty());
  std::string many = "data:\n  train: [";
  for (int i = 0; i < 150000; ++i) many += "a,";
  CHECK(contains(deck_error(many + "]\n"), "more than 100,000 values"));
  std::string unknown = "run:\n";
  for (int i = 0; i < 20000; ++i) unknown += "  key" + std::to_string(i) + ": 1\n";
  CHECK(contains(deck_error(unknown), "... and "));
}

TEST_CASE("short texts of indicators, line ends and indentation are accepted or refused") {
  const std::string bytes = "!!|>:-?[]{},&*%#'\"ab0\n\n\n    ";
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t length = 1 + random() % 24; text.size() < length;) text += bytes[random() % bytes.size()];
    CAPTURE(text);
    const std::string message = deck_error(text);  // throws what is not of a deck
    refused += message.empty() ? 0 : 1;
    CHECK((message.empty() || message.starts_with("deck.yaml")));
  }
  CHECK(refused > 15000);
}

TEST_CASE("no mutation of a deck makes the reader do anything but accept or refuse") {
  const std::string good =
      "run: {steps: 30, name: 'x'}\nmodel:\n  rope: {theta: 1e4}\ndata:\n  train: [a, {prefix: b}]\n";
  const std::string bytes = "{}[]:,-?*&!|>'\"%@`#\n \t\r0aA~.\\\x01\x80";
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int edits = 0; edits < 1 + i % 4; ++edits) {
      const std::size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 3) {
        case 0: text[at] = byte; break;
        case 1: text.insert(at, 1, byte); break;
        default: text.erase(at, 1 + random() % 3); break;
      }
    }
    CAPTURE(text);
    try {
      const Deck deck = parse_deck(text, "deck.yaml");
      CHECK(to_yaml(parse_deck(to_yaml(deck), "again")) == to_yaml(deck));
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::configuration);
      CHECK(std::string(error.what()).starts_with("deck.yaml:"));
    }
  }
}
