// SPDX-License-Identifier: Apache-2.0
/// Keys of products, and choices as text.
#include "llmtrain/backend/gemm_choices.hpp"

#include <algorithm>
#include <span>
#include <sstream>

#include "llmtrain/backend/observer.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

constexpr std::string_view heading = "gemm ", closing = "digest ";
constexpr GemmForm forms[] = {GemmForm::nt, GemmForm::nn, GemmForm::tn};
constexpr Epilogue epilogues[] = {Epilogue::none, Epilogue::gelu, Epilogue::gelu_gradient};
constexpr DType dtypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::fp8_e4m3, DType::fp8_e5m2};

/// Largest power of two, up to 16 (no kernel wants more), that divides the address and the rows' distance.
int alignment_of(const Tensor& t) {
  const auto bits = reinterpret_cast<std::uintptr_t>(t.data) |
                    static_cast<std::uintptr_t>(t.rows() > 1 ? t.leading * size_of(t.dtype) : 0) | 16u;
  return static_cast<int>(bits & -bits);
}

/// Of both factors, or of A and B where they differ: "fp8_e5m2:fp8_e4m3".
std::string data_name(const GemmKey& key) {
  return key.data == key.data_b ? std::string(name_of(key.data))
                                : fmt::format("{}:{}", name_of(key.data), name_of(key.data_b));
}

std::string line_of(const GemmKey& key, const GemmChoice& choice) {
  std::string line =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", name_of(key.form), data_name(key), name_of(key.result),
                  key.bias ? "bias" : "plain", name_of(key.epilogue), key.m, key.n, key.k, key.lda, key.ldb, key.ldd,
                  key.ld_gelu, key.alignment, shortest(choice.seconds));
  for (const std::uint64_t word : choice.algorithm) line += fmt::format(" {:x}", word);
  return line + "\n";
}

/// The one of `values` with this name.
template <class T>
bool parse_name(std::span<const T> values, std::string_view word, T& value) {
  const auto found = std::ranges::find(values, word, [](T v) { return std::string_view(name_of(v)); });
  if (found == values.end()) return false;
  value = *found;
  return true;
}

bool parse_data(std::string_view word, GemmKey& key) {
  const std::size_t colon = word.find(':');
  const std::string_view b = colon == std::string_view::npos ? word : word.substr(colon + 1);
  return parse_name<DType>(dtypes, word.substr(0, colon), key.data) && parse_name<DType>(dtypes, b, key.data_b);
}

bool parse_line(const std::string& line, GemmKey& key, GemmChoice& choice) {
  std::istringstream in(line);
  std::string form, data, result, bias, epilogue;
  in >> form >> data >> result >> bias >> epilogue >> key.m >> key.n >> key.k >> key.lda >> key.ldb >> key.ldd >>
      key.ld_gelu >> key.alignment >> choice.seconds >> std::hex;
  for (std::uint64_t& word : choice.algorithm) in >> word;
  if (!in || !(in >> std::ws).eof() || (bias != "bias" && bias != "plain")) return false;
  key.bias = bias == "bias";
  return parse_name<GemmForm>(forms, form, key.form) && parse_name<Epilogue>(epilogues, epilogue, key.epilogue) &&
         parse_data(data, key) && parse_name<DType>(dtypes, result, key.result);
}

}  // namespace

const char* name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return "none";
    case Epilogue::gelu: return "gelu";
    case Epilogue::gelu_gradient: return "gelu_gradient";
  }
  return "";
}

GemmKey key_of(GemmForm form, const Tensor& d, const Tensor& a, const Tensor& b, bool bias, Epilogue epilogue,
               const Tensor& gelu) {
  return {.form = form,
          .data = a.dtype,
          .data_b = b.dtype,
          .result = d.dtype,
          .bias = bias,
          .epilogue = epilogue,
          .m = d.rows(),
          .n = d.cols(),
          .k = form == GemmForm::tn ? a.rows() : a.cols(),
          .lda = a.leading,
          .ldb = b.leading,
          .ldd = d.leading,
          .ld_gelu = gelu.leading,
          .alignment = std::min({alignment_of(a), alignment_of(b), alignment_of(d)})};
}

std::optional<GemmKey> product_of(const OpNote& note) {
  const std::string_view text = note.form;
  if (text == "nt gelu") {
    return key_of(GemmForm::nt, note.writes[1], note.reads[0], note.reads[1], note.reads.size() > 2, Epilogue::gelu,
                  note.writes[0]);
  }
  if (text == "nn gelu") {
    return key_of(GemmForm::nn, note.writes[0], note.reads[0], note.reads[1], false, Epilogue::gelu_gradient,
                  note.reads[2]);
  }
  GemmForm form{};
  if (!parse_name<GemmForm>(forms, text, form)) return std::nullopt;
  const Tensor& d = note.writes[0];
  // A third may also be what is added to, or a scale.
  const bool bias = note.reads.size() > 2 && note.reads[2].data != d.data && !is_fp8(note.reads[0].dtype);
  return key_of(form, d, note.reads[0], note.reads[1], bias);
}

std::string to_text(const GemmChoiceBook& book) {
  std::string text;
  for (const auto& [identity, choices] : book) {
    text += fmt::format("{}{}\n", heading, identity);
    for (const auto& [key, choice] : choices) text += line_of(key, choice);
  }
  return text + fmt::format("{}{}\n", closing, digest_of(text));
}

GemmChoiceBook parse_gemm_choices(std::string_view text, const std::string& name) {
  const std::size_t end = text.rfind(closing);
  const bool whole = end != std::string_view::npos &&
                     text.substr(end) == fmt::format("{}{}\n", closing, digest_of(text.substr(0, end)));
  require(whole, ExitCode::bad_input, "{} is damaged: its last line is not the digest of those before it", name);
  GemmChoiceBook book;
  GemmChoices* choices = nullptr;
  std::istringstream lines{std::string(text.substr(0, end))};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(heading)) {
      choices = &book[line.substr(heading.size())];
      continue;
    }
    GemmKey key;
    GemmChoice choice;
    require(choices != nullptr && parse_line(line, key, choice), ExitCode::bad_input,
            "{} was written by another version of the program: what is '{}'?", name, line);
    (*choices)[key] = choice;
  }
  return book;
}

}  // namespace llmtrain
