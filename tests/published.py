"Files of minimal pairs in the forms of the published tests: BLiMP, Zorro, EWoK, COMPS, entity tracking, WUG"

BLIMP = dict(sentence_good='Who left?', sentence_bad='Who leaved?', field='syntax', linguistics_term='irregular_forms',
             UID='irregular_past', simple_LM_method=True, pairID='0')
FILES = { # name: lines
    'irregular_past.jsonl': [BLIMP], # BLiMP, and filtered
    'hypernym.jsonl': [dict(row=0, contrast='base/hyponym', sentence_good='It is a dog.', sentence_bad='It is a cat.')],
    'agreement-across_1.txt': ['look at this things .', 'look at this thing .'], # Zorro
    'social-properties.jsonl': [dict(Domain='social-properties', ConceptA='kind', ContextType='direct',
                                     ContextDiff='antonym', TargetDiff='swap', Context1='Ann is kind.',
                                     Context2='Ann is mean.', Target1='She helps.', Target2='She hits.')],
    'comps_base.jsonl': [dict(id=1, property='can fly', acceptable_concept='robin', unacceptable_concept='cat',
                              prefix_acceptable='a robin', property_phrase='can fly.', prefix_unacceptable='a cat',
                              negative_sample_type='taxonomic', similarity=.5)],
    'regular.jsonl': [dict(sample_id=1, numops=4, input_prefix='Box 0 contains the egg. Box 0 contains ',
                           options=['the egg.', 'a cat.', 'a hat.', 'a ring.', 'a key.'], example_id=0)],
    'wug_adj.jsonl': [dict(sentences='the daxity\tthe daxness', ratio='0.25')]}
