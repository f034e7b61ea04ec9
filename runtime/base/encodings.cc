#include "runtime/base/encodings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace sluice {
namespace {

struct Place {
  std::string_view name;
  const Encoding* Encodings::* encoding;  // null: `kept`, which is known when all places are read
};
constexpr Place kPlaces[] = {{"weights", &Encodings::weights},
                             {"trained", &Encodings::trained},
                             {"rows", &Encodings::rows},
                             {"grads", &Encodings::grads},
                             {"kept", nullptr},
                             {"sent", &Encodings::sent}};
// The beginning of the place of a single weight.
constexpr std::string_view kWeight = "weights.";

std::string placeNames() {
  std::string names;
  for (const Place& each : kPlaces) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  return fmt::format("{}, {}NAME", names, kWeight);
}

bool isSquare(const Encoding& encoding) { return findInfo(encoding.rounding).isSquare; }
bool isScaled(const Encoding& encoding) { return findInfo(encoding.rounding).isScaled; }
bool isFloor(const Encoding& encoding) { return findInfo(encoding.rounding).isFloor; }
bool isE5m2(const Encoding& encoding) {
  return encoding.rounds() && findInfo(encoding.rounding).mantissaBits == 2;
}

// Whether a place can have an encoding at all.
bool fits(std::string_view place, const Encoding& encoding) {
  if (encoding.name == kBf16.name) return true;
  if (place == "weights") return encoding.hasCodes();
  if (place == "sent")
    return encoding.rounds() && !isScaled(encoding) && !isSquare(encoding) && !isE5m2(encoding);
  if (place == "trained") return encoding.rounds() && !isE5m2(encoding) && encoding.amax == AmaxSource::kStep;
  if (encoding.hasCodes()) return encoding.element == DType::kI8 && place != "kept";
  if (isSquare(encoding)) return false;
  return place == "grads" ? encoding.amax == AmaxSource::kStep : !isE5m2(encoding);
}

// The encoding of a table's row that differs from `encoding` only in what `change` changes.
template <class Change>
const Encoding* changed(const Encoding& encoding, const Change& change) {
  Encoding wanted = encoding;
  change(wanted);
  for (const Encoding& each : kEncodings)
    if (each.rounding == wanted.rounding && each.amax == wanted.amax && each.element == wanted.element)
      return &each;
  return &encoding;
}

const Encoding* withoutSquares(const Encoding& encoding) {
  return changed(encoding, [](Encoding& each) {
    if (each.rounding == Rounding::kMxE4m3Square) each.rounding = Rounding::kMxE4m3;
    if (each.rounding == Rounding::kMxE4m3SquareFloor) each.rounding = Rounding::kMxE4m3Floor;
  });
}

const Encoding* withAmaxOfStep(const Encoding& encoding) {
  return changed(encoding, [](Encoding& each) { each.amax = AmaxSource::kStep; });
}

void setAll(Encodings& encodings, const Encoding& encoding) {
  if (encoding.hasCodes()) {
    encodings.weights = &encoding;
    return;
  }
  encodings.trained = withAmaxOfStep(encoding);
  encodings.rows = withoutSquares(encoding);
  encodings.grads = withAmaxOfStep(*encodings.rows);
}

// What an encoding without a place may be: gradients alone have E5M2, since they need its range.
bool fitsAll(const Encoding& encoding) { return !isE5m2(encoding); }

template <class Fits>
std::string namesOf(const Fits& fits) {
  std::vector<std::string_view> names;
  for (const Encoding& each : kEncodings)
    if (fits(each)) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Error refuse(std::string_view place, std::string_view found, std::string_view expected) {
  return Error{fmt::format("encode: {}={}, expected {}", place, found, expected)};
}

Status setOne(Encodings& encodings, std::string_view place, std::string_view name, const Encoding*& kept) {
  const bool isSingle = place.starts_with(kWeight);
  const Place* const known = std::ranges::find(kPlaces, isSingle ? "weights" : place, &Place::name);
  if (known == std::end(kPlaces))
    return Error{fmt::format("encode: found no place '{}', expected one of {}", place, placeNames())};
  const auto fitsHere = [&](const Encoding& each) { return fits(known->name, each); };
  const Encoding* encoding = findEncoding(name);
  if (encoding == nullptr || !fitsHere(*encoding)) return refuse(place, name, "one of " + namesOf(fitsHere));
  if (isSingle)
    encodings.single[std::string(place.substr(kWeight.size()))] = encoding;
  else
    (known->encoding == nullptr ? kept : encodings.*known->encoding) = encoding;
  return {};
}

// Weights of codes are multiplied as they are, by rows of bf16 or, if their sums are exact, of codes.
Status checkCodes(const Encodings& e, std::string_view place, const Encoding& codes) {
  const std::string with = fmt::format("{}={}", place, codes.name);
  if (e.trained->rounds() || e.rows->rounds() || e.grads->rounds())
    return Error{
        fmt::format("encode: {} are codes, which products do not round: expected trained, rows and grads of "
                    "bf16, or {}=bf16",
                    with, place)};
  if (e.rows->hasCodes() && !codes.isExact())
    return refuse("rows", e.rows->name, fmt::format("bf16 with {}", with));
  if (e.grads->hasCodes() && !codes.isByColumn())
    return refuse(
        "grads", e.grads->name,
        fmt::format("bf16 with {}: gradients are multiplied by one scale per column of a weight, without "
                    "groups, squares or zeros",
                    with));
  if (e.sent->rounds())
    return refuse(
        "sent", e.sent->name,
        fmt::format("none with {}: tokens are sent as products read them, rows={}", with, e.rows->name));
  return {};
}

Status checkCodes(const Encodings& e) {
  if (e.weights->hasCodes())
    if (Status status = checkCodes(e, "weights", *e.weights); !status) return status;
  for (const auto& [name, encoding] : e.single) {
    if (!encoding->hasCodes()) continue;
    if (Status status = checkCodes(e, fmt::format("{}{}", kWeight, name), *encoding); !status) return status;
  }
  return {};
}

// Products round all their factors in one way, but gradients may be E5M2.
Status checkRoundings(const Encodings& e) {
  for (const auto& [place, each] : {std::pair("rows", e.rows), std::pair("grads", e.grads)}) {
    if (each->hasCodes()) return refuse(place, each->name, "weights of int8 or int4");
    if (each->rounds() != e.trained->rounds() || isScaled(*each) != isScaled(*e.trained) ||
        isFloor(*each) != isFloor(*e.trained))
      return refuse(place, each->name, fmt::format("one like trained={}", e.trained->name));
  }
  if (!e.sent->rounds() || e.sent == e.rows) return {};
  if (!e.rows->rounds()) return refuse("sent", e.sent->name, "rows that products round in the same way");
  if (isScaled(*e.rows))
    return refuse(
        "sent", e.sent->name,
        fmt::format("bf16 with rows={}: tokens would be sent only after all of them were measured, at all "
                    "ranks",
                    e.rows->name));
  return refuse("sent", e.sent->name, fmt::format("{}, as rows have it", e.rows->name));
}

Status check(Encodings& e, const Encoding* kept) {
  if (Status status = e.hasCodes() ? checkCodes(e) : checkRoundings(e); !status) return status;
  if (kept == nullptr || kept == e.rows) return {};
  if (kept != &kBf16)
    return refuse("kept", kept->name, fmt::format("bf16, or {}, as rows have it", e.rows->name));
  if (e.sent->rounds())
    return refuse("kept", "bf16", fmt::format("{}, since only codes arrive", e.sent->name));
  e.keepsBf16 = true;
  return {};
}

}  // namespace

const Encoding& Encodings::ofWeight(std::string_view name) const {
  const auto found = single.find(name);
  return found == single.end() ? *weights : *found->second;
}

bool Encodings::hasCodes() const {
  const auto isOfCodes = [](const auto& each) { return each.second->hasCodes(); };
  return weights->hasCodes() || std::ranges::any_of(single, isOfCodes);
}

Expected<Encodings> parseEncodings(std::string_view text) {
  Encodings encodings;
  const Encoding* kept = nullptr;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    if (const size_t equals = part.find('='); equals != std::string_view::npos) {
      if (Status status = setOne(encodings, part.substr(0, equals), part.substr(equals + 1), kept); !status)
        return status.error();
      continue;
    }
    const Encoding* encoding = findEncoding(part);
    if (encoding == nullptr || !fitsAll(*encoding))
      return Error{
          fmt::format("encode: found '{}', expected an encoding ({}), or PLACE=ENCODING with a place of {}",
                      part, namesOf(fitsAll), placeNames())};
    setAll(encodings, *encoding);
  }
  if (Status status = check(encodings, kept); !status) return status.error();
  return encodings;
}

std::string printEncodings(const Encodings& e) {
  std::string text;
  const auto add = [&](std::string_view place, std::string_view name) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", place, name);
  };
  Encodings implied;
  const Encoding& first = e.weights->hasCodes()
                              ? *e.weights
                              : *changed(*e.trained, [&](Encoding& each) { each.amax = e.rows->amax; });
  setAll(implied, first);
  if (&first != &kBf16) add("", first.name);
  for (const auto& [name, encoding] : e.single) add(fmt::format("{}{}=", kWeight, name), encoding->name);
  if (e.rows != implied.rows) add("rows=", e.rows->name);
  if (e.grads != implied.grads) add("grads=", e.grads->name);
  if (e.sent != implied.sent) add("sent=", e.sent->name);
  if (e.keepsBf16) add("kept=", kBf16.name);
  return text;
}

std::string spelledNow(std::string_view name, std::string_view value) {
  struct Row {
    std::string_view option, value, now;  // No value: any, or a flag.
  };
  constexpr Row kRows[] = {
      {"precision", "bf16", "bf16"},
      {"precision", "int8", "int8,rows=int8"},
      {"precision", "int8-weights", "int8"},
      {"precision", "int4", "int4,rows=int8"},
      {"precision", "int4-weights", "int4"},
      {"precision", "fp8-weights", "fp8e4m3:128x128"},
      {"precision", "fp8", "fp8e4m3"},
      {"precision", "mxfp8", "mxfp8"},
      {"precision", "mxfp8-32x32", "mxfp8:32x32"},
      {"group", "", "int4:g32, int4:g64 or int4:g128"},
      {"zeros", "", "int4:z, int4:g32z, int4:g64z or int4:g128z"},
      {"backward", "bf16", "grads=bf16"},
      {"backward", "int8", "grads=int8"},
      {"recipe", "current", "fp8e4m3"},
      {"recipe", "delayed", "fp8e4m3:delayed"},
      {"amaxes", "", "fp8e4m3:amax"},
      {"fp8-format", "e4m3", "fp8e4m3 or mxfp8"},
      {"fp8-format", "hybrid", "fp8e4m3,grads=fp8e5m2 or mxfp8,grads=mxfp8e5m2"},
      {"exponent", "ceil", "mxfp8"},
      {"exponent", "floor", "mxfp8:floor"},
      {"fp8-dispatch", "", "mxfp8,sent=mxfp8"},
      {"kept-as", "codes", "mxfp8"},
      {"kept-as", "bf16", "mxfp8,kept=bf16"},
  };
  for (const Row& row : kRows)
    if (row.option == name && (row.value.empty() || row.value == value)) return std::string(row.now);
  return {};
}

}  // namespace sluice
