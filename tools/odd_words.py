"""Ten sentences with one exchanged word each: `python tools/odd_words.py RUN ...` prints the word that the
discriminator of each run finds most improbable, and how often it is the right one."""
import sys

from electra_nbdev.scoring.score import load_scorer, score_tokens

SENTENCES = {
    'He opened the because and walked into the room.': 'because',
    'The boy ran up the stairs and shut the were.': 'were',
    'It was a very cold night, and the wind was should.': 'should',
    'She gave him a kiss and from good night.': 'from',
    'We sat down by the fire and our began to talk.': 'our',
    'My father was a good man, and he loved my mother very of.': 'of',
    'The old gentleman took off his hat and of to the lady.': 'of',
    'I do not know what you mean, sir, said the is.': 'is',
    'He put his hand on my shoulder and upon kindly.': 'upon',
    'The captain looked at the ship, and then he looked at had.': 'had'}

def main():
    for run in sys.argv[1:]:
        scorer, hits = load_scorer(run), 0
        for text,odd in SENTENCES.items():
            found = score_tokens(scorer, text)
            i = max(range(len(found.probs)), key=lambda i: found.probs[i])
            before, word, after = ' '.join(found.words[:i]), found.words[i], ' '.join(found.words[i+1:])
            hits += word==odd
            print(f"{'right' if word==odd else 'wrong'}  {before} [{word} {found.probs[i]:.0%}] {after}")
        print(f'{hits} of {len(SENTENCES)} exchanged words found by {run}', flush=True)

if __name__=='__main__': main()
