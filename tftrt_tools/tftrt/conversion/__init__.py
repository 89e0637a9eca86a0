"""From a SavedModel to a TF-TRT SavedModel: settings, plan, graph pass, engines. The only room that calls TrtGraphConverterV2."""
