"""The pack `words`: numbers about texts."""

import re
import statistics
from collections import Counter
from typing import NotRequired, TypedDict

from flowcell_sdk import Failure, Task, pack

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
SENTENCE = re.compile(r"[.!?…]+")
#: How many words are told if nothing is said.
TOP = 5


class Text(TypedDict):
    text: str
    top: NotRequired[int]


def describe(task: Task[Text]) -> dict:
    text = task.input["text"]
    words = WORD.findall(text)
    if not words:
        raise Failure("no_words", "there is no word in the text")
    sentences = [count for part in SENTENCE.split(text) if (count := len(WORD.findall(part)))]
    counts = Counter(word.lower() for word in words)
    # Stable, so that words that come equally often stay in the order of the text.
    frequent = sorted(counts.items(), key=lambda pair: -pair[1])[: task.input.get("top", TOP)]
    return {
        "characters": len(text),
        "words": len(words),
        "sentences": len(sentences),
        "meanWordLength": round(statistics.mean(map(len, words)), 2),
        "medianSentenceWords": statistics.median(sentences),
        "frequent": [{"word": word, "count": count} for word, count in frequent],
    }


Node = pack({"words.statistics": describe})
