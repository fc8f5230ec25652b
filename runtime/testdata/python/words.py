import collections
import re


def count(text, stopwords):
    words = re.findall(r"\w+", text.lower())
    return collections.Counter(word for word in words if word not in stopwords)
