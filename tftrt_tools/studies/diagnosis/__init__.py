"""Why a converted model is not faster: findings from a profile, ranked by the time that each is worth."""
