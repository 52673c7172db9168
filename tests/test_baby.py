"What `tools/baby.py` selects: whole sentences, ten million words, ten passes at most"
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/'tools'))
import baby

def test_sentences_of_both_kinds_of_files(tmp_path):
    (tmp_path/'novel.txt').write_text('He saw Mr. Dale &amp; me. "Who is there?" he cried. No.\n', encoding='utf-8')
    wiki = '= = A Title = =\nMr.\nDale lived in Spain.\nHe was old then.\n'
    (tmp_path/'wiki.train').write_text(wiki, encoding='utf-8')
    assert baby.sentences(tmp_path/'novel.txt')==['He saw Mr. Dale & me.', '"Who is there?" he cried.']
    assert baby.sentences(tmp_path/'wiki.train')==['Mr. Dale lived in Spain.', 'He was old then.']

def test_no_more_words_than_allowed(tmp_path, monkeypatch):
    "The newest novels come first, none of 1929 or later, and the last file is cut at a sentence"
    text, out = tmp_path/'text', tmp_path/'out'
    for o in (*baby.OTHERS, 'text/novels/A_Old_1850.txt', 'text/novels/B_New_1928.txt', 'text/novels/C_Late_1929.txt'):
        (text/o).parent.mkdir(parents=True, exist_ok=True)
        (text/o).write_text('One two three four. Five six seven eight.\n', encoding='utf-8')
    out.mkdir()
    monkeypatch.setattr(baby, 'WORDS', 37)
    taken = baby.select(text, out)
    assert [*taken.values()]==[8, 8, 8, 8, 4] and [*taken][3:]==['B_New_1928.txt', 'A_Old_1850.txt']
    assert (out/'A_Old_1850.txt').read_text(encoding='utf-8')=='One two three four.\n'

@pytest.mark.parametrize('name', baby.OBJECTIVES)
def test_no_model_reads_its_text_more_than_ten_times(name):
    assert 1<=sum(baby.passes(name))<=baby.PASSES
